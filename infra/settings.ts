import type { Settings } from "./lib/settings.ts";

/** What is deployed. Every field, with its default: lib/settings.ts. */
export const settings: Settings = {
  bridgeId: "telemetry-bridge",
  brokerUrl: "tls://broker.example.com:8883",
  queue: { name: "telemetry" },
  topicFilter: "telemetry/#",
  // The client id is new: its broker keeps no subscriptions of it.
  managedSubscriptionBaselines: { broker: [] },
};
