import type { Settings } from "./lib/settings.ts";

/** What scripts/deploy-local deploys to an emulator. `cdk … -c settings=settings.local.ts` chooses it. */
export const settings: Settings = {
  bridgeId: "local-bridge",
  brokerUrl: process.env.CAUSEWAY_LOCAL_BROKER_URL ?? "mqtt://127.0.0.1:1883",
  queue: { name: "telemetry" },
  // The configuration finds this one by its name.
  queues: { ORDERS_URL: { name: "orders" } },
  topicFilter: "telemetry/#",
  managedSubscriptionBaselines: { broker: [] },
  configFiles: ["config/bridge.yaml", "config/local.yaml"],
  redriveQueueDeadLetters: true,
  // Tasks are records in an emulator: nothing is pulled. What they would run is run beside it.
  image: `registry.invalid/causeway@sha256:${"0".repeat(64)}`,
  // The functions do run there, on this machine.
  architecture: process.arch === "arm64" ? "arm64" : "x86_64",
  housekeepingMinutes: 1,
  terminationProtection: false,
};
