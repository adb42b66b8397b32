/** The guards of the stack: what is refused at synth, each with a code and a remedy. */
export { RULES, type RuleCode } from "./codes.ts";
export { checkConfig } from "./config.ts";
export { describe, type SynthFault, SynthRefused } from "./fault.ts";
export { checkImage, type ImageSource } from "./image.ts";
export {
  checkShutdown,
  checkStopTimeout,
  checkTableNames,
  checkWorkerCount,
  MAX_STOP_TIMEOUT_SECONDS,
  STOP_MARGIN_SECONDS,
} from "./inputs.ts";
export { checkSubnetsSpanTwoAzs, type SubnetProof } from "./subnets.ts";
export { CausewayRules } from "./template.ts";
