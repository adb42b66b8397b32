import { Token } from "aws-cdk-lib";
import type * as ec2 from "aws-cdk-lib/aws-ec2";
import { refuse } from "./codes.ts";
import type { SynthFault } from "./fault.ts";

/** What a look at the subnets found. */
export interface SubnetProof {
  /** Why two zones are not proved. */
  readonly faults: SynthFault[];
  /** The VPC is still being looked up: ask again in the next pass of synth. */
  readonly deferred: boolean;
}

/**
 * Subnets that provably lie in two availability zones.
 *
 * A count of subnets proves nothing: two may share a zone. A VPC that is made here has zones that are tokens, `Fn::Select` of `Fn::GetAZs`: they
 * prove two zones by their different indexes. A list of zones that is itself a token proves nothing, nor does a subnet that was imported by its id alone.
 */
export function checkSubnetsSpanTwoAzs(vpc: ec2.IVpc, selection: ec2.SubnetSelection): SubnetProof {
  const path = "vpcSubnets";
  const refused = (code: "CAUSEWAY_NET_001" | "CAUSEWAY_NET_002", message: string): SubnetProof => ({
    faults: [refuse(code, path, message)],
    deferred: false,
  });
  let selected: ec2.SelectedSubnets;
  try {
    selected = vpc.selectSubnets(selection);
  } catch (error) {
    return refused("CAUSEWAY_NET_001", `the VPC has no such subnets: ${reason(error)}`);
  }
  if (selected.isPendingLookup === true) return { faults: [], deferred: true };
  const zones = new Set<string>();
  for (const subnet of selected.subnets) {
    let zone: string;
    try {
      zone = subnet.availabilityZone;
    } catch (error) {
      return refused("CAUSEWAY_NET_002", `the zone of subnet ${subnet.node.path} is not known: ${reason(error)}`);
    }
    // An element of a list that is a token does not look like a token by itself.
    if (Token.isUnresolved(zone) || Token.isUnresolved([zone])) {
      const index = Token.isUnresolved(zone) ? zoneIndex(vpc, zone) : undefined;
      if (index === undefined)
        return refused("CAUSEWAY_NET_002", "the zone names are a token, which may stand for one zone");
      zones.add(index);
    } else {
      zones.add(zone);
    }
  }
  if (zones.size >= 2) return { faults: [], deferred: false };
  return refused(
    "CAUSEWAY_NET_001",
    `the ${selected.subnets.length} chosen subnets lie in ${zones.size} availability zone${zones.size === 1 ? "" : "s"}: with it, owner and standby would be gone together`,
  );
}

/** `Fn::Select` with a literal index of this region's `Fn::GetAZs`, as a text; anything else proves nothing. */
function zoneIndex(vpc: ec2.IVpc, zone: string): string | undefined {
  const resolved: unknown = vpc.stack.resolve(zone);
  if (!isRecord(resolved)) return undefined;
  const select = resolved["Fn::Select"];
  if (!Array.isArray(select) || select.length !== 2) return undefined;
  const [index, list] = select as [unknown, unknown];
  const literal = typeof index === "number" || (typeof index === "string" && /^[0-9]+$/.test(index));
  return literal && isRecord(list) && "Fn::GetAZs" in list ? `#${index}` : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function reason(error: unknown): string {
  return error instanceof Error ? (error.message.split("\n")[0] ?? error.message) : String(error);
}
