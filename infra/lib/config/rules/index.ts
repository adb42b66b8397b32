/**
 * The rules between fields, with the program's codes: for machines that synthesize without the program. tests/fixtures/invalid has a file for
 * each, and a test holds both to it.
 */
import type { SynthFault } from "../../checks/fault.ts";
import type { BridgeConfig } from "../model.ts";
import { checkBridge } from "./bridge.ts";
import { Check } from "./check.ts";
import { checkCommands } from "./commands.ts";
import { checkDrops } from "./drops.ts";
import { checkEnds } from "./ends.ts";
import { checkFlow } from "./flow/index.ts";
import { checkLeases } from "./lease.ts";
import { checkProcessors } from "./processor.ts";
import { checkRoutes } from "./route.ts";
import { checkSessions } from "./session.ts";
import { checkStores } from "./stores.ts";

/** Every broken rule; `broken` are the paths that already have a fault. */
export function checkRules(config: BridgeConfig, broken: ReadonlySet<string>): SynthFault[] {
  const check = new Check(config, broken);
  const rules = [
    checkBridge,
    checkStores,
    checkDrops,
    checkCommands,
    checkSessions,
    checkEnds,
    checkRoutes,
    checkProcessors,
    checkLeases,
    checkFlow,
  ];
  for (const rule of rules) rule(check);
  return check.faults;
}
