import { fileURLToPath } from "node:url";
import type { Architecture } from "./constructs/image.ts";

/** A queue of the bridge. */
export type QueueSetting =
  /** A new queue of this name, with a dead-letter queue of its own called `<name>-dlq`. */
  | {
      readonly name: string;
      /**
       * After how many receives without a deletion SQS moves a message to the dead-letter queue. The bridge holds what it receives until its destination
       * took it, and gives it back when the task stops.
       *
       * @default 10
       */
      readonly maxReceiveCount?: number;
    }
  /** A queue that exists. */
  | {
      readonly arn: string;
      /**
       * The ARN of the key of KMS that encrypts it, where that is a key of yours; not of its alias.
       *
       * @default - encrypted by SQS itself, or not at all
       */
      readonly keyArn?: string;
    };

/** A VPC that exists. Zones and subnets are written out, so that nothing is looked up and two zones can be proved. */
export interface VpcSetting {
  /** Such as `vpc-0123456789abcdef0`. */
  readonly id: string;
  /** Names of its zones, one for each subnet, in the same order. */
  readonly availabilityZones: readonly string[];
  /** The private subnets of the tasks, from which broker and AWS are reached. */
  readonly privateSubnetIds: readonly string[];
  /**
   * The subnets' route tables, in the same order; needed for gateway endpoints.
   *
   * @default - no gateway endpoints are added
   */
  readonly privateSubnetRouteTableIds?: readonly string[];
}

/** How a new VPC is made. */
export interface NewVpcSetting {
  /**
   * One in each of two zones keeps the bridge alive when a zone fails. 0: no public subnets, isolated ones alone.
   *
   * @default 2
   */
  readonly natGateways?: number;
  /**
   * Its address range.
   *
   * @default "10.0.0.0/16"
   */
  readonly cidr?: string;
  /**
   * Interface endpoints for SQS, ECR, CloudWatch Logs, SSM and Secrets Manager.
   *
   * @default - only where `natGateways` is 0
   */
  readonly interfaceEndpoints?: boolean;
  /**
   * Flow logs of refused traffic.
   *
   * @default true
   */
  readonly flowLogs?: boolean;
}

/** An Application Load Balancer that exists, and what it passes on. */
export interface LoadBalancerSetting {
  /** Its HTTPS listener. */
  readonly listenerArn: string;
  /** Its security group. */
  readonly securityGroupId: string;
  /** The number of the first of two rules. */
  readonly priority: number;
  /**
   * Paths for HTTP receivers and the command gateway, such as `/in/*`.
   *
   * @default - none
   */
  readonly transportPaths?: readonly string[];
  /**
   * Host names of the admin interface, which only the control task serves.
   *
   * @default - none
   */
  readonly adminHosts?: readonly string[];
}

/** Everything that a deployment can choose. `settings.ts` is the one file to edit. */
export interface Settings {
  /** The name of the bridge: letters, digits, `-` and `_`. Also its client id at the broker in the configuration that comes with this package. */
  readonly bridgeId: string;

  /** The broker, such as `tls://broker.example.com:8883`. Becomes `${BROKER_URL}`. */
  readonly brokerUrl: string;

  /** The queue that the bridge delivers to. Its address becomes `${QUEUE_URL}`. */
  readonly queue: QueueSetting;

  /**
   * Further queues, by the `${NAME}` that stands for their addresses in the configuration: `{ ORDERS_URL: { name: "orders" } }` for a receiver or a
   * sender with `queue_url: ${ORDERS_URL}`. What the configuration does with a queue decides what its tasks may do with it.
   *
   * @default - none
   */
  readonly queues?: Readonly<Record<string, QueueSetting>>;

  /**
   * What the bridge subscribes to. Becomes `${TOPIC_FILTER}`.
   *
   * @default "telemetry/#"
   */
  readonly topicFilter?: string;

  /**
   * What the broker keeps for the client id of each exclusive session already; an empty list for a client id that is new.
   */
  readonly managedSubscriptionBaselines: Readonly<Record<string, readonly string[]>>;

  /**
   * Files of the configuration, relative to this folder; later ones change what earlier ones say.
   *
   * @default ["config/bridge.yaml"]
   */
  readonly configFiles?: readonly string[];

  /**
   * Values of further `${NAME}` of the configuration.
   *
   * @default - none
   */
  readonly variables?: Readonly<Record<string, string>>;

  /**
   * Secrets of the configuration by the `${NAME}` that stands for them: `ssm:/causeway/broker-ca`, `secretsmanager:causeway/broker` or
   * `secretsmanager:causeway/broker#password`. Certificates and keys are PEM text. `HINT_TOKEN` and
   * `ADMIN_API_KEY` are made by the stack where the configuration names them, unless they are given here.
   *
   * @default - none but `HINT_TOKEN` and `ADMIN_API_KEY`
   */
  readonly secrets?: Readonly<Record<string, string>>;

  /**
   * ARNs of keys of KMS that encrypt those secrets, unless they are AWS's own.
   *
   * @default - none
   */
  readonly secretKeyArns?: readonly string[];

  /**
   * How many workers run besides the control task: 2 or more.
   *
   * @default 2
   */
  readonly workerDesiredCount?: number;

  /**
   * `tree`: built by scripts/build-image. Else an address that ends in `@sha256:…`.
   *
   * @default "tree"
   */
  readonly image?: string;

  /**
   * The processor of tasks and functions.
   *
   * @default "arm64"
   */
  readonly architecture?: Architecture;

  /**
   * CPU units of each task, 1024 to a virtual CPU.
   *
   * @default 512
   */
  readonly cpu?: number;

  /**
   * Memory of each task.
   *
   * @default 1024
   */
  readonly memoryLimitMiB?: number;

  /**
   * The beginning of the tables' names. Becomes `${TABLE_PREFIX}`.
   *
   * @default "causeway"
   */
  readonly tablePrefix?: string;

  /**
   * True: the tables exist, under these names; none is made.
   *
   * @default false
   */
  readonly existingTables?: boolean;

  /**
   * Whether CloudFormation refuses to delete the stack of tables and queue. They are retained even where it does not.
   *
   * @default true
   */
  readonly terminationProtection?: boolean;

  /**
   * The network: one that exists, or how a new one is made.
   *
   * @default - a new one of two zones with a NAT gateway in each
   */
  readonly vpc?: VpcSetting | NewVpcSetting;

  /**
   * The name of a cluster that exists; it needs `vpc` too.
   *
   * @default - a new cluster
   */
  readonly clusterName?: string;

  /**
   * The name of a log group that exists.
   *
   * @default - a new log group
   */
  readonly logGroupName?: string;

  /**
   * How many days new log groups keep their lines; one of CloudWatch's numbers.
   *
   * @default 30
   */
  readonly logRetentionDays?: number;

  /**
   * Address ranges of the brokers.
   *
   * @default ["0.0.0.0/0"]
   */
  readonly brokerCidrs?: readonly string[];

  /**
   * A load balancer to attach to.
   *
   * @default - none
   */
  readonly loadBalancer?: LoadBalancerSetting;

  /**
   * Alarms and the dashboard.
   *
   * @default true
   */
  readonly alarms?: boolean;

  /**
   * A topic of SNS that alarms tell.
   *
   * @default - alarms tell nobody
   */
  readonly alarmTopicArn?: string;

  /**
   * How often housekeeping runs, in minutes.
   *
   * @default 5
   */
  readonly housekeepingMinutes?: number;

  /**
   * Whether redrive may also empty the dead-letter queues of the queues that are made here (`mode: sqs`).
   *
   * @default false
   */
  readonly redriveQueueDeadLetters?: boolean;

  /**
   * The `causeway` program, which then checks the configuration itself.
   *
   * @default - the schema and the rules of this package check
   */
  readonly checker?: string;
}

/** The variable of the configuration that `queue` fills. */
export const QUEUE_VARIABLE = "QUEUE_URL";

/** Every queue of the settings by its variable. */
export function queueSettings(settings: Settings): Record<string, QueueSetting> {
  return { [QUEUE_VARIABLE]: settings.queue, ...settings.queues };
}

/** The queues that are made here, by their variables. */
export function madeQueues(settings: Settings): [variable: string, queue: Extract<QueueSetting, { name: string }>][] {
  return Object.entries(queueSettings(settings)).flatMap(([variable, queue]) =>
    "name" in queue ? [[variable, queue] as const] : [],
  );
}

/** The values of `${NAME}` that are known at synth. */
export function variables(settings: Settings): Record<string, string> {
  return {
    BRIDGE_ID: settings.bridgeId,
    BROKER_URL: settings.brokerUrl,
    TOPIC_FILTER: settings.topicFilter ?? "telemetry/#",
    TABLE_PREFIX: settings.tablePrefix ?? "causeway",
    ...settings.variables,
  };
}

/** The files of the configuration, absolute. */
export function configFiles(settings: Settings): string[] {
  const files = settings.configFiles ?? ["config/bridge.yaml"];
  return files.map((file) => fileURLToPath(new URL(file, new URL("../", import.meta.url))));
}
