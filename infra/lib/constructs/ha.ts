import { Annotations, type CfnOutput, Tags } from "aws-cdk-lib";
import type * as ecs from "aws-cdk-lib/aws-ecs";
import type * as kms from "aws-cdk-lib/aws-kms";
import type * as logs from "aws-cdk-lib/aws-logs";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import { Construct } from "constructs";
import { type SynthFault, SynthRefused } from "../checks/fault.ts";
import type { ImageSource } from "../checks/image.ts";
import { checkConfig } from "../checks/index.ts";
import {
  type BridgeConfig,
  type ConfigDocument,
  drainSeconds,
  loadConfigDocument,
  shutdownSeconds,
} from "../config-document.ts";
import type { TableRole } from "../operations.ts";
import { ADMIN_API_KEY, AdminKey, namesAdminKey } from "./admin-key.ts";
import { dropsOnPurpose } from "./alarm-specs/index.ts";
import { BridgeAlarms, type BridgeAlarmsProps } from "./alarms.ts";
import { BaselineSeeds } from "./baseline.ts";
import { ConfigDelivery } from "./config-delivery.ts";
import { BridgeDashboard } from "./dashboard.ts";
import { refuseProp } from "./faults.ts";
import { HINT_TOKEN, HintToken, namesHintToken } from "./hint-token.ts";
import { HousekeepingFunction, type HousekeepingFunctionProps } from "./housekeeping.ts";
import type { Architecture } from "./image.ts";
import type { LoadBalancerAttachmentProps } from "./load-balancer.ts";
import { BridgeNetwork, type BridgeNetworkProps } from "./network.ts";
import { commandLines } from "./outputs.ts";
import { QueueEnds, type QueueSource } from "./queue-ends.ts";
import { RedriveFunction, type RedriveFunctionProps } from "./redrive.ts";
import { secretPlaces } from "./secret-places.ts";
import { BridgeService, checkTasks, checkVariables } from "./service.ts";
import { BridgeTables, defaultTableNames, type IBridgeTables } from "./tables.ts";

/** Where the configuration comes from. */
export interface BridgeConfigSource {
  /** Files of YAML, in order: later ones change what earlier ones say, element by element. */
  readonly files: readonly string[];

  /**
   * Values of `${NAME}` that are known now. They are filled in before the document is delivered. Nothing is taken from the environment of the
   * machine that synthesizes.
   *
   * @default - none
   */
  readonly environment?: Readonly<Record<string, string>>;

  /**
   * The `causeway` program, which then checks the document itself.
   *
   * @default - the schema and the rules of this package check
   */
  readonly checker?: string;
}

/** What of the two functions can be chosen. */
type FunctionOptions<Props> = Partial<
  Omit<Props, "bridgeId" | "tables" | "configuration" | "environment" | "architecture" | "destinations">
>;

/** What of the alarms can be chosen. */
export type AlarmOptions = Pick<BridgeAlarmsProps, "actions" | "outboxAgeSeconds" | "outboxDepth">;

/** Props of {@link CausewayDynamoDBHA}. */
export interface CausewayDynamoDBHAProps {
  /** The bridge's configuration: clustered, its stores in DynamoDB, with at least one exclusive session. */
  readonly bridgeConfig: BridgeConfigSource;

  /**
   * For every exclusive session of the configuration: the filters that its broker keeps for its client id already. An empty list says that the client
   * id is new. Nothing is guessed, because a subscription that nobody remembers would deliver for ever.
   */
  readonly managedSubscriptionBaselines: Readonly<Record<string, readonly string[]>>;

  /**
   * How many workers run besides the control task: a literal whole number of 2 or more.
   *
   * @default 2
   */
  readonly workerDesiredCount?: number;

  /**
   * The image of the tasks: pinned by digest, or built from this tree by `scripts/build-image`.
   *
   * @default { kind: "tree" }
   */
  readonly image?: ImageSource;

  /**
   * The folder that `scripts/build-image` filled.
   *
   * @default - `dist/image` of this tree
   */
  readonly imageContext?: string;

  /**
   * The processor of tasks and functions.
   *
   * @default "arm64"
   */
  readonly architecture?: Architecture;

  /**
   * The queues that the configuration names by a variable: `{ QUEUE_URL: queue }` for `queue_url: ${QUEUE_URL}`, of senders and of receivers. Queues
   * that it names by their whole address, or receivers by their name, need no entry, unless a key of yours encrypts them.
   *
   * @default - none
   */
  readonly queues?: Readonly<Record<string, sqs.IQueue>>;

  /**
   * Dead-letter queues of those queues, which redrive with `mode: sqs` may move back.
   *
   * @default - none; that mode is then refused by IAM
   */
  readonly redriveQueueDeadLetters?: readonly sqs.IQueue[];

  /**
   * Secrets that the configuration names by a variable: `{ BROKER_CA: ecs.Secret.fromSsmParameter(…) }` for `ca_cert_pem: ${BROKER_CA}`. The tasks get
   * their values at start; they stand in no template. `HINT_TOKEN` and `ADMIN_API_KEY` are made by the stack where the configuration names them and
   * nothing gives them.
   *
   * @default - none
   */
  readonly secrets?: Readonly<Record<string, ecs.Secret>>;

  /**
   * Keys of KMS that encrypt those secrets, unless they are AWS's own.
   *
   * @default - none
   */
  readonly secretKeys?: readonly kms.IKey[];

  /**
   * The tables, where they are made elsewhere (see `BridgeTables.fromTableNames`).
   *
   * @default - made here, with the names that the configuration says
   */
  readonly tables?: IBridgeTables;

  /**
   * Names of the tables that the configuration does not name: `commands` and `ledger`.
   *
   * @default - `causeway-commands`, `causeway-ledger`
   */
  readonly tableNames?: Partial<Record<TableRole, string>>;

  /**
   * The network: an existing VPC and subnets, or how to make one.
   *
   * @default - a new VPC of two zones with a NAT gateway in each
   */
  readonly network?: BridgeNetworkProps;

  /**
   * The cluster.
   *
   * @default - a new one
   */
  readonly cluster?: ecs.ICluster;

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
   * How long a task may take from SIGTERM to its end, in seconds, at most 120.
   *
   * @default 120
   */
  readonly stopTimeoutSeconds?: number;

  /**
   * The tasks' log group.
   *
   * @default - a new one
   */
  readonly logGroup?: logs.ILogGroup;

  /**
   * How long new log groups keep their lines.
   *
   * @default logs.RetentionDays.ONE_MONTH
   */
  readonly logRetention?: logs.RetentionDays;

  /**
   * Address ranges (IPv4) of the brokers. Their ports come from the configuration.
   *
   * @default ["0.0.0.0/0"]
   */
  readonly brokerCidrs?: readonly string[];

  /**
   * A listener of an Application Load Balancer to attach to.
   *
   * @default - none
   */
  readonly loadBalancer?: LoadBalancerAttachmentProps;

  /**
   * The folder of `scripts/build-lambdas`.
   *
   * @default - `dist/lambdas` of this tree
   */
  readonly lambdaFolder?: string;

  /**
   * How housekeeping runs.
   *
   * @default - every five minutes
   */
  readonly housekeeping?: FunctionOptions<HousekeepingFunctionProps>;

  /**
   * How redrive runs.
   *
   * @default - when invoked
   */
  readonly redrive?: FunctionOptions<Omit<RedriveFunctionProps, "deadLetterQueues">>;

  /**
   * Alarms and the dashboard; false for neither.
   *
   * @default - alarms that tell nobody, and a dashboard
   */
  readonly alarms?: AlarmOptions | false;

  /**
   * Names of further alarms that end a deployment and roll it back.
   *
   * @default - none besides those of `alarms`
   */
  readonly deploymentAlarmNames?: readonly string[];
}

/**
 * A highly available bridge: one control task, two or more workers in two availability zones, tables that keep what must not be lost, housekeeping,
 * and redrive. Refuses at synth what could not keep that promise, with every reason at once.
 */
export class CausewayDynamoDBHA extends Construct {
  /** The configuration as it was read and checked. */
  public readonly document: ConfigDocument;
  /** The bridge's name. */
  public readonly bridgeId: string;
  /** How the configuration is delivered. */
  public readonly configuration: ConfigDelivery;
  /** The network. */
  public readonly network: BridgeNetwork;
  /** What the tasks' hints carry, where the configuration names it and it was not given. */
  public readonly hintToken?: HintToken;
  /** The key of the admin interface, where the configuration names it and it was not given. */
  public readonly adminKey?: AdminKey;
  /** The tables. */
  public readonly tables: IBridgeTables;
  /** The rows of managed subscriptions that the sessions start from. */
  public readonly baselines: BaselineSeeds;
  /** The tasks. */
  public readonly service: BridgeService;
  /** What tidies up. */
  public readonly housekeeping: HousekeepingFunction;
  /** What puts dead letters back on their way. */
  public readonly redrive: RedriveFunction;
  /** The queues that the configuration sends to, in its order. */
  public readonly destinations: readonly sqs.IQueue[];
  /** The queues that it receives from, in its order. */
  public readonly sources: readonly QueueSource[];
  /** The alarms, unless switched off. */
  public readonly alarms?: BridgeAlarms;
  /** The dashboard, unless switched off. */
  public readonly dashboard?: BridgeDashboard;
  /** Ready command lines, by name. */
  public readonly outputs: Readonly<Record<string, CfnOutput>>;

  public constructor(scope: Construct, id: string, props: CausewayDynamoDBHAProps) {
    super(scope, id);
    const { queues = {}, secrets = {}, architecture = "arm64" } = props;
    this.document = loadDocument(props);
    const { value } = this.document;
    this.bridgeId = value.bridge?.id ?? "";
    const tableNames = { ...defaultTableNames(), ...props.tableNames, ...configuredNames(value) };
    const ends = new QueueEnds(this, this.document.faults.length > 0 ? {} : value, queues);
    // Settings run uncompiled: what is missing is told like what is empty.
    const baselines = props.managedSubscriptionBaselines ?? {};
    SynthRefused.ifAny([
      ...checkConfig(this.document, mutable(baselines)),
      ...checkVariables({ ...props.bridgeConfig.environment, ...queues }, secrets),
      ...(props.tables === undefined ? [] : checkNames(configuredNames(value), props.tables)),
      ...ends.faults,
      ...checkTasks({ ...props, image: props.image ?? { kind: "tree" }, ...this.stopping() }),
    ]);
    this.destinations = ends.destinations;
    this.sources = ends.sources;
    this.network = new BridgeNetwork(this, "Network", props.network);
    this.tables = props.tables ?? new BridgeTables(this, "Tables", { tableNames });
    this.configuration = new ConfigDelivery(this, "Config", {
      bridgeId: this.bridgeId,
      text: this.document.text,
      digest: this.document.digest,
    });
    this.baselines = this.seed(baselines, props.logRetention);
    if (!given(props).has(HINT_TOKEN) && namesHintToken(this.document.text)) {
      this.hintToken = new HintToken(this, "HintToken", { bridgeId: this.bridgeId });
    }
    if (!given(props).has(ADMIN_API_KEY) && namesAdminKey(this.document.text)) {
      this.adminKey = new AdminKey(this, "AdminKey", { bridgeId: this.bridgeId });
    }
    const environment = Object.fromEntries(Object.entries(queues).map(([name, queue]) => [name, queue.queueUrl]));
    const common = {
      bridgeId: this.bridgeId,
      tables: this.tables,
      configuration: this.configuration,
      environment,
      architecture,
      logRetention: props.logRetention,
      lambdaFolder: props.lambdaFolder,
    };
    this.service = new BridgeService(this, "Service", {
      ...common,
      ...this.serviceProps(props),
      image: props.image ?? { kind: "tree" },
      secrets: {
        ...secrets,
        ...(this.hintToken && { [HINT_TOKEN]: this.hintToken.containerSecret }),
        ...(this.adminKey && { [ADMIN_API_KEY]: this.adminKey.containerSecret }),
      },
    });
    this.housekeeping = new HousekeepingFunction(this, "Housekeeping", { ...common, ...props.housekeeping });
    this.redrive = new RedriveFunction(this, "Redrive", {
      ...common,
      ...props.redrive,
      destinations: this.destinations,
      ...this.movedBack(props.redriveQueueDeadLetters),
    });
    if (props.alarms !== false) {
      const drops = dropsOnPurpose(this.document.value);
      this.alarms = new BridgeAlarms(this, "Alarms", { ...this.watched(), dropsOnPurpose: drops, ...props.alarms });
      this.dashboard = new BridgeDashboard(this, "Dashboard", { ...this.watched(), alarms: this.alarms });
    }
    const watching = [...(this.alarms?.deploymentAlarmNames ?? []), ...(props.deploymentAlarmNames ?? [])];
    if (watching.length > 0) this.service.watchDeployments(watching);
    this.outputs = commandLines(this);
    Tags.of(this).add("causeway:bridge", this.bridgeId);
    if (this.service.zonesDeferred) {
      Annotations.of(this).addInfo(
        "Whether the subnets span two availability zones is checked after the VPC was looked up.",
      );
    }
  }

  /** What redrive may move back, and into which of the queues that the bridge receives from. */
  private movedBack(deadLetterQueues: readonly sqs.IQueue[] = []) {
    return { deadLetterQueues, sources: deadLetterQueues.length === 0 ? [] : queuesOf(this.sources) };
  }

  /** What a stop may take; nothing of a configuration that cannot be used. */
  private stopping() {
    const { sessions, value, faults } = this.document;
    if (faults.length > 0) return { drainSeconds: 0, stepDownSeconds: 0, shutdownSeconds: 0 };
    const graces = sessions.filter((session) => session.exclusive).map((session) => session.stepDownGraceSeconds);
    return {
      drainSeconds: drainSeconds(value),
      stepDownSeconds: Math.max(0, ...graces),
      shutdownSeconds: shutdownSeconds(value),
    };
  }

  private serviceProps(props: CausewayDynamoDBHAProps) {
    const { sessions } = this.document;
    return {
      vpc: this.network.vpc,
      vpcSubnets: this.network.vpcSubnets,
      destinations: this.destinations,
      sources: queuesOf(this.sources),
      sourcesByName: queuesOf(this.sources.filter(({ byName }) => byName)),
      ...this.stopping(),
      // Of every session: senders publish over connections to their session's broker.
      brokerPorts: sessions.flatMap((session) => session.brokerPorts),
      startAfter: Object.values(this.baselines.seeds),
      imageContext: props.imageContext,
      writesLedger: this.document.value.stores?.ledger !== undefined,
      takesCommands: this.document.value.stores?.commands !== undefined,
      cluster: props.cluster,
      secretKeys: props.secretKeys,
      secretPlaces: secretPlaces(this.document.value),
      workerDesiredCount: props.workerDesiredCount,
      cpu: props.cpu,
      memoryLimitMiB: props.memoryLimitMiB,
      stopTimeoutSeconds: props.stopTimeoutSeconds,
      logGroup: props.logGroup,
      brokerCidrs: props.brokerCidrs,
      loadBalancer: props.loadBalancer,
    };
  }

  /** What the alarms look at. */
  private watched() {
    const { service, housekeeping } = this;
    return {
      bridgeId: this.bridgeId,
      sessions: [...this.document.sessions.filter(({ feeds }) => feeds), ...this.loggedSources()],
      sources: this.sources.map(({ receiver, queue }) => ({ receiver, queueName: queue.queueName })),
      clusterName: service.cluster.clusterName,
      controlServiceName: service.controlService.serviceName,
      workerServiceName: service.workerService.serviceName,
      tableNames: this.tables.tableNames,
      housekeeping: {
        functionName: housekeeping.handler.functionName,
        intervalMinutes: housekeeping.intervalMinutes,
        deadLetterQueueName: housekeeping.deadLetterQueue.queueName,
      },
      redrive: { functionName: this.redrive.handler.functionName },
    };
  }

  /** Queues have no session; what came from them waits in logs of the processes under this name. */
  private loggedSources() {
    const { routes = [] } = this.document.value;
    const isLogged = (receiver: string) =>
      routes.some(
        (route) => route.receiver_id === receiver && (route.delivery_mode ?? "direct_hold") !== "direct_hold",
      );
    return this.sources
      .filter(({ receiver }) => isLogged(receiver))
      .map(({ receiver }) => ({ id: `sqs:${receiver}`, exclusive: false }));
  }

  private seed(
    baselines: Readonly<Record<string, readonly string[]>>,
    logRetention?: logs.RetentionDays,
  ): BaselineSeeds {
    const exclusive = this.document.sessions.filter((session) => session.exclusive);
    const seeds = new BaselineSeeds(this, "Baselines", {
      tables: this.tables,
      baselines: exclusive.map((session) => ({
        sessionId: session.id,
        storageIdentity: session.storageIdentity,
        filters: baselines[session.id] ?? [],
      })),
      logRetention,
    });
    if (this.tables instanceof BridgeTables) seeds.node.addDependency(this.tables);
    return seeds;
  }
}

function loadDocument(props: CausewayDynamoDBHAProps): ConfigDocument {
  const { files, environment = {}, checker } = props.bridgeConfig;
  const container = [...Object.keys(props.queues ?? {}), ...Object.keys(props.secrets ?? {})];
  for (const made of [HINT_TOKEN, ADMIN_API_KEY]) if (!given(props).has(made)) container.push(made);
  return loadConfigDocument(files, environment, checker, container);
}

/** The variables that the props give. */
function given({ bridgeConfig, queues, secrets }: CausewayDynamoDBHAProps): ReadonlySet<string> {
  return new Set(Object.keys({ ...bridgeConfig.environment, ...queues, ...secrets }));
}

/** The names of tables that the configuration says. */
function configuredNames(value: BridgeConfig): Partial<Record<TableRole, string>> {
  const roles = {
    lease: "leases",
    outbox: "outbox",
    dlq: "dlq",
    managed_subscriptions: "managed_subscriptions",
    ledger: "ledger",
    commands: "commands",
  } as const;
  const names: Partial<Record<TableRole, string>> = {};
  const standard = defaultTableNames();
  for (const [store, role] of Object.entries(roles) as [keyof typeof roles, TableRole][]) {
    // Without a store in the configuration the table is housekeeping's alone, and its name the props'.
    if ((store === "ledger" || store === "commands") && value.stores?.[store] === undefined) continue;
    const written = value.stores?.[store]?.options?.table_name;
    names[role] = typeof written === "string" ? written : standard[role];
  }
  return names;
}

function checkNames(configured: Partial<Record<TableRole, string>>, tables: IBridgeTables): SynthFault[] {
  return Object.entries(configured).flatMap(([role, name]) => {
    const actual = tables.tableNames[role as TableRole];
    if (actual === name) return [];
    return [
      refuseProp(
        "CAUSEWAY_PRP_001",
        `tables.${role}`,
        `the configuration says "${name}", and the table is called "${actual}"`,
      ),
    ];
  });
}

/** The queues of sources, each once. */
function queuesOf(sources: readonly QueueSource[]): sqs.IQueue[] {
  return [...new Set(sources.map(({ queue }) => queue))];
}

function mutable(baselines: Readonly<Record<string, readonly string[]>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(baselines).map(([session, filters]) => [session, [...filters]]));
}
