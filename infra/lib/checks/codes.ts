import type { SynthFault } from "./fault.ts";

/**
 * Every rule of the stack: its code and what to do where it is broken. docs/deploy.md has a row for each, and test/ a fixture that breaks it;
 * both are tested.
 */
export const RULES = {
  CAUSEWAY_ECS_001: "write a whole number of 2 or more, as a literal, for workerDesiredCount",
  CAUSEWAY_ECS_002: "write a whole number of seconds from 1 to 120 for stopTimeoutSeconds",
  CAUSEWAY_ECS_003:
    "raise stopTimeoutSeconds, or lower bridge.drain_timeout and step_down_grace in the configuration, until drain + step-down + 10 s fits",
  CAUSEWAY_ECS_004: "take back the override: DesiredCount of the control service is the literal 1",
  CAUSEWAY_ECS_005: "take back the override: the control service stops before it starts (minimum 0 %, maximum 100 %)",
  CAUSEWAY_ECS_006:
    'take back the override: AvailabilityZoneRebalancing of the control service is "DISABLED", written out',
  CAUSEWAY_ECS_007: "take back the override: DesiredCount of the workers is a literal whole number of 2 or more",
  CAUSEWAY_ECS_008: "take back the override: workers start before they stop (minimum 100 %, maximum 200 %)",
  CAUSEWAY_ECS_009: "lower MinimumHealthyPercent to 0, or raise MaximumPercent to 200",
  CAUSEWAY_ECS_010:
    "take back the override: StopTimeout of the causeway container is a literal number of seconds from 1 to 120",
  CAUSEWAY_ECS_011:
    "lower bridge.shutdown_timeout in the configuration, or raise stopTimeoutSeconds (at most 120), until shutdown_timeout + 10 s fits",
  CAUSEWAY_NET_001: "choose subnets of two or more availability zones",
  CAUSEWAY_NET_002:
    "import the VPC or the subnets with literal zone names (Vpc.fromLookup, or fromVpcAttributes and fromSubnetAttributes with availabilityZone)",
  CAUSEWAY_TBL_001: "write the table's name out; a token cannot be compared with the other names",
  CAUSEWAY_TBL_002: "use 3 to 255 letters, digits, `_`, `-` and `.`",
  CAUSEWAY_TBL_003: "give each table its own name",
  CAUSEWAY_TBL_004: "take back the override: this table has no TimeToLiveSpecification, ever",
  CAUSEWAY_TBL_005: "take back the override: PointInTimeRecoveryEnabled is true",
  CAUSEWAY_TBL_006: "take back the override: DeletionProtectionEnabled is true",
  CAUSEWAY_TBL_007: "take back the override: DeletionPolicy and UpdateReplacePolicy are Retain",
  CAUSEWAY_IMG_001: "write REGISTRY/NAME@sha256:DIGEST, an ECR repository with a digest, or build from this tree",
  CAUSEWAY_IMG_002: "copy the digest from the registry: `docker buildx imagetools inspect NAME` prints it",
  CAUSEWAY_AST_001: "build it first: scripts/build-lambdas for the functions, scripts/build-image for the image",
  CAUSEWAY_CFG_001: "write `bridge: {deployment_mode: clustered}`",
  CAUSEWAY_CFG_002: "add `stores: {lease|outbox|dlq|managed_subscriptions: {type: dynamodb}}`",
  CAUSEWAY_CFG_003: "write `session_mode: exclusive` on at least one session; otherwise nothing needs a standby",
  CAUSEWAY_CFG_004:
    "write the client_id out, or as a variable whose value the settings give: it must be known at synth, and the same for all tasks",
  CAUSEWAY_CFG_005:
    "add it to managedSubscriptionBaselines: the filters that the broker already keeps for this client_id, or [] for a client_id that is new",
  CAUSEWAY_CFG_006: "remove it, or correct the name: baselines are for exclusive sessions of the configuration",
  CAUSEWAY_CFG_007: "write MQTT topic filters: `+` stands for a whole level, `#` for the rest and comes last",
  CAUSEWAY_CFG_008:
    "add `failover_slo` to the session block of its routes; `causeway budget FILE` shows what can be promised",
  CAUSEWAY_CFG_009:
    "add `broker_health_step_down: off`, or a duration such as `90s`, to the session block of its routes",
  CAUSEWAY_CFG_010:
    "add `session: {session_id: …, sender_id: …}` to the route, naming the exclusive session that feeds it",
  CAUSEWAY_CFG_011: "add a route with `session: {session_id: …}` for it, or remove the session",
  CAUSEWAY_CFG_012: "remove `bridge.cluster.endpoints`: each task finds its own address",
  CAUSEWAY_CFG_013: "write `delivery_mode: shared_outbox`",
  CAUSEWAY_CFG_014: "write `bridge: {metrics_exporter: emf}`",
  CAUSEWAY_CFG_015: 'leave `http.transport_addr` out, or write ":8082"',
} as const;

/** The code of a rule. */
export type RuleCode = keyof typeof RULES;

/** A fault with the remedy of its rule. */
export function refuse(code: RuleCode, path: string, message: string): SynthFault {
  return { code, path, message, remedy: RULES[code] };
}
