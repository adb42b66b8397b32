import { Stack } from "aws-cdk-lib";
import * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import type { SynthFault } from "../checks/fault.ts";
import { type BridgeConfig, standIn } from "../config-document.ts";
import { refuseProp } from "./faults.ts";

/** The queues that a configuration sends to, each once: those that it names by a variable, and those that it names by address. */
export class QueueEnds {
  /** Where it sends to. */
  public readonly destinations: readonly sqs.IQueue[];
  /** Addresses that say nothing. */
  public readonly faults: SynthFault[] = [];
  private readonly scope: Construct;
  private readonly byAddress = new Map<string, sqs.IQueue>();

  public constructor(scope: Construct, value: BridgeConfig, queues: Readonly<Record<string, sqs.IQueue>>) {
    this.scope = scope;
    for (const [name, queue] of Object.entries(queues)) this.byAddress.set(standIn(name), queue);
    const senders = (value.senders ?? []).filter((sender) => sender.session_id === undefined);
    this.destinations = this.all("senders", senders);
  }

  private all(section: string, ends: { id?: string; options?: Record<string, unknown> }[]): sqs.IQueue[] {
    const found = ends.map((end, index) => this.queue(`${section}[${index}].options`, end.options ?? {}));
    return [...new Set(found.filter((queue) => queue !== undefined))];
  }

  private queue(path: string, options: Record<string, unknown>): sqs.IQueue | undefined {
    const address = options.queue_url ?? options.queue_name;
    if (typeof address !== "string") return undefined;
    const known = this.byAddress.get(address);
    if (known !== undefined) return known;
    const arn = options.queue_url === undefined ? this.named(address) : arnOf(this.scope, address);
    if (arn === undefined) {
      this.faults.push(
        refuseProp(
          "CAUSEWAY_PRP_003",
          `${path}.queue_url`,
          "no queue can be told from this address, so that nobody can be allowed to use it",
        ),
      );
      return undefined;
    }
    const queue = sqs.Queue.fromQueueArn(this.scope, `Queue-${this.byAddress.size}`, arn);
    this.byAddress.set(address, queue);
    return queue;
  }

  private named(name: string): string | undefined {
    if (!/^[A-Za-z0-9_-]{1,75}(\.fifo)?$/.test(name)) return undefined;
    return Stack.of(this.scope).formatArn({ service: "sqs", resource: name });
  }
}

/** `https://sqs.eu-west-1.amazonaws.com/123456789012/name` as an ARN. */
function arnOf(scope: Construct, address: string): string | undefined {
  const parts =
    /^https:\/\/(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?\/(\d+)\/([A-Za-z0-9_-]{1,75}(?:\.fifo)?)$/.exec(
      address,
    );
  if (parts === null) return undefined;
  const [, modern, legacy, account, resource] = parts;
  const region = modern ?? legacy;
  if (region === undefined || account === undefined || resource === undefined) return undefined;
  return Stack.of(scope).formatArn({ service: "sqs", region, account, resource });
}
