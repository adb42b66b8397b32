import { Duration, Stack, Token } from "aws-cdk-lib";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as iam from "aws-cdk-lib/aws-iam";
import type * as kms from "aws-cdk-lib/aws-kms";
import * as logs from "aws-cdk-lib/aws-logs";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import { Construct, type IDependable } from "constructs";
import type { SynthFault } from "../checks/fault.ts";
import { SynthRefused } from "../checks/fault.ts";
import type { ImageSource } from "../checks/image.ts";
import {
  checkImage,
  checkShutdown,
  checkStopTimeout,
  checkSubnetsSpanTwoAzs,
  checkWorkerCount,
} from "../checks/index.ts";
import { PORTS } from "../ports.ts";
import { acknowledge, acknowledgeOwnStreams, acknowledgePattern } from "./acknowledge.ts";
import type { ConfigDelivery } from "./config-delivery.ts";
import { refuseProp } from "./faults.ts";
import { type Architecture, resolveImage } from "./image.ts";
import { LoadBalancerAttachment, type LoadBalancerAttachmentProps } from "./load-balancer.ts";
import { NO_QUEUES, statements } from "./permissions.ts";
import { blockDeploy, PLACEHOLDER } from "./placeholder.ts";
import { secretStatements } from "./secret-places.ts";
import type { IBridgeTables } from "./tables.ts";

/** The kinds of tasks. Both run the bridge and may own its sessions; control also serves the admin interface and is exactly one. */
export type TaskKind = "control" | "worker";

/** User and group of the program in its container. */
const USER = "65532:65532";

/** Memory in MiB that Fargate offers with so many CPU units. */
const FARGATE_MEMORY: Readonly<Record<number, readonly [from: number, to: number, step: number]>> = {
  256: [512, 2048, 512],
  512: [1024, 4096, 1024],
  1024: [2048, 8192, 1024],
  2048: [4096, 16_384, 1024],
  4096: [8192, 30_720, 1024],
};

/** Props of {@link BridgeService}. */
export interface BridgeServiceProps {
  /** The bridge's name: `bridge.id` of the configuration. */
  readonly bridgeId: string;

  /** The VPC of the tasks. */
  readonly vpc: ec2.IVpc;

  /**
   * The subnets of the tasks, in two availability zones, provably so at synth.
   *
   * @default - private subnets with egress
   */
  readonly vpcSubnets?: ec2.SubnetSelection;

  /**
   * The cluster.
   *
   * @default - a new cluster with Container Insights
   */
  readonly cluster?: ecs.ICluster;

  /** The image: pinned by digest, or built from this tree. */
  readonly image: ImageSource;

  /**
   * The folder that `scripts/build-image` filled, for an image that is built from this tree.
   *
   * @default - `dist/image` of this tree
   */
  readonly imageContext?: string;

  /** The configuration as it is delivered to the tasks. */
  readonly configuration: ConfigDelivery;

  /** The bridge's tables. */
  readonly tables: IBridgeTables;

  /**
   * Whether the configuration names `stores.ledger`: the tasks may write the ledger of drops then.
   *
   * @default false
   */
  readonly writesLedger?: boolean;

  /**
   * Whether the configuration names `stores.commands`: the tasks may keep commands and their answers then.
   *
   * @default false
   */
  readonly takesCommands?: boolean;

  /**
   * Queues that the configuration sends to.
   *
   * @default - none
   */
  readonly destinations?: readonly sqs.IQueue[];

  /**
   * Queues that the configuration receives from.
   *
   * @default - none
   */
  readonly sources?: readonly sqs.IQueue[];

  /**
   * Those of `sources` of which the configuration says the name alone: the tasks ask SQS for the address.
   *
   * @default - none
   */
  readonly sourcesByName?: readonly sqs.IQueue[];

  /**
   * Where the tasks themselves read secrets that the configuration names: `ssm:///NAME`, `secretsmanager://NAME`.
   *
   * @default - nowhere
   */
  readonly secretPlaces?: readonly string[];

  /**
   * What the containers' environment holds besides what the stack sets itself: variables of the configuration that only exist at deploy.
   *
   * @default - nothing
   */
  readonly environment?: Readonly<Record<string, string>>;

  /**
   * Variables whose values are secrets of SSM or Secrets Manager: certificates and keys as PEM text, passwords. Never literal values.
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
   * How many workers run: a literal whole number of 2 or more. With the control task that makes one owner and at least two that can take over.
   *
   * @default 2
   */
  readonly workerDesiredCount?: number;

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
   * The processor.
   *
   * @default "arm64"
   */
  readonly architecture?: Architecture;

  /**
   * How long a task may take from SIGTERM to its end, in seconds: at most 120, and enough to drain, to step down, and 10 s more; and 10 s more than
   * `shutdownSeconds`.
   *
   * @default 120
   */
  readonly stopTimeoutSeconds?: number;

  /**
   * How long the last drain of the configuration may take, in seconds; checked against `stopTimeoutSeconds`.
   *
   * @default 10
   */
  readonly drainSeconds?: number;

  /**
   * How long a stop may take in all, in seconds: `shutdown_timeout` of the configuration; checked against `stopTimeoutSeconds`.
   *
   * @default 30
   */
  readonly shutdownSeconds?: number;

  /**
   * The longest `step_down_grace` of the configuration, in seconds; checked against `stopTimeoutSeconds`.
   *
   * @default 15
   */
  readonly stepDownSeconds?: number;

  /**
   * The tasks' log group.
   *
   * @default - a new one that is kept when the stack goes
   */
  readonly logGroup?: logs.ILogGroup;

  /**
   * How long a new log group keeps its lines.
   *
   * @default logs.RetentionDays.ONE_MONTH
   */
  readonly logRetention?: logs.RetentionDays;

  /**
   * TCP ports of the brokers. Nothing else but 443 is open outwards.
   *
   * @default [8883]
   */
  readonly brokerPorts?: readonly number[];

  /**
   * Address ranges (IPv4) of the brokers.
   *
   * @default ["0.0.0.0/0"]
   */
  readonly brokerCidrs?: readonly string[];

  /**
   * Names of alarms that end a deployment and roll it back when they go off while it runs.
   *
   * @default - none; the circuit breaker alone watches
   */
  readonly deploymentAlarmNames?: readonly string[];

  /**
   * A listener of an Application Load Balancer for HTTP receivers and the command gateway, and for the admin interface.
   *
   * @default - none
   */
  readonly loadBalancer?: LoadBalancerAttachmentProps;

  /**
   * What must exist before a task starts, such as the baselines of its sessions.
   *
   * @default - nothing beyond what the tasks refer to
   */
  readonly startAfter?: readonly IDependable[];
}

/**
 * The tasks of a bridge: one control task and two or more workers on Fargate.
 *
 * Control stops before it starts (0/100, no rebalancing), so that there is never a second one. Workers start before they stop (100/200): the lease
 * decides who owns a session, so that a deployment costs no standby. Both roll back by themselves.
 */
export class BridgeService extends Construct {
  /** The cluster. */
  public readonly cluster: ecs.ICluster;
  /** The one control task. */
  public readonly controlService: ecs.FargateService;
  /** The workers. */
  public readonly workerService: ecs.FargateService;
  /** Task definitions by kind. */
  public readonly taskDefinitions: Readonly<Record<TaskKind, ecs.FargateTaskDefinition>>;
  /** What the program may do, by kind of task. */
  public readonly taskRoles: Readonly<Record<TaskKind, iam.Role>>;
  /** What ECS may do to start a task, by kind: pull the image, read the secrets, write the log. */
  public readonly executionRoles: Readonly<Record<TaskKind, iam.Role>>;
  /** The group of every task: the brokers' ports and 443 out, transport in from itself. */
  public readonly securityGroup: ec2.SecurityGroup;
  /** The group of the control task alone: where a load balancer reaches the admin interface. */
  public readonly controlSecurityGroup: ec2.SecurityGroup;
  /** The tasks' log. */
  public readonly logGroup: logs.ILogGroup;
  /** The attachment to a load balancer, where one was asked for. */
  public readonly loadBalancer?: LoadBalancerAttachment;
  /** True: whether the subnets span two zones is known only after CDK has looked the VPC up. */
  public readonly zonesDeferred: boolean;

  private readonly props: BridgeServiceProps;
  private readonly architecture: Architecture;
  private readonly watched: string[] = [];

  public constructor(scope: Construct, id: string, props: BridgeServiceProps) {
    super(scope, id);
    this.props = props;
    this.architecture = props.architecture ?? "arm64";
    const vpcSubnets = props.vpcSubnets ?? { subnetType: ec2.SubnetType.PRIVATE_WITH_EGRESS };
    const zones = checkSubnetsSpanTwoAzs(props.vpc, vpcSubnets);
    SynthRefused.ifAny([...checkServiceProps(props), ...zones.faults]);
    this.zonesDeferred = zones.deferred;
    this.cluster =
      props.cluster ??
      new ecs.Cluster(this, "Cluster", { vpc: props.vpc, containerInsightsV2: ecs.ContainerInsights.ENABLED });
    this.logGroup =
      props.logGroup ??
      new logs.LogGroup(this, "Log", { retention: props.logRetention ?? logs.RetentionDays.ONE_MONTH });
    this.securityGroup = this.createSecurityGroup();
    this.controlSecurityGroup = new ec2.SecurityGroup(this, "ControlSecurityGroup", {
      vpc: props.vpc,
      description: `Admin interface of the bridge ${props.bridgeId}`,
      allowAllOutbound: false,
    });
    this.taskRoles = { control: this.taskRole("control"), worker: this.taskRole("worker") };
    this.executionRoles = { control: this.executionRole("control"), worker: this.executionRole("worker") };
    this.taskDefinitions = { control: this.taskDefinition("control"), worker: this.taskDefinition("worker") };
    this.controlService = this.service("control", vpcSubnets);
    this.workerService = this.service("worker", vpcSubnets);
    for (const kind of ["control", "worker"] as const) {
      const service = kind === "control" ? this.controlService : this.workerService;
      // A task that starts before it may pull its image or read its secrets fails, and the circuit breaker counts it.
      service.node.addDependency(this.executionRoles[kind], ...(props.startAfter ?? []));
    }
    if (props.deploymentAlarmNames !== undefined) this.watchDeployments(props.deploymentAlarmNames);
    if (props.loadBalancer !== undefined) {
      this.loadBalancer = new LoadBalancerAttachment(this, "LoadBalancer", { ...props.loadBalancer, service: this });
    }
  }

  /**
   * Ends a deployment of either service and rolls it back when one of these alarms goes off while it runs. By name, because the alarms watch the
   * services and so are made after them.
   */
  public watchDeployments(alarmNames: readonly string[]): void {
    this.watched.push(...alarmNames);
    for (const { node } of [this.controlService, this.workerService]) {
      // On the resource itself: CDK's own method ignores names that come after the first ones.
      const alarms = { AlarmNames: [...new Set(this.watched)], Enable: true, Rollback: true };
      (node.defaultChild as ecs.CfnService).addPropertyOverride("DeploymentConfiguration.Alarms", alarms);
    }
  }

  private createSecurityGroup(): ec2.SecurityGroup {
    const { vpc, bridgeId } = this.props;
    const group = new ec2.SecurityGroup(this, "SecurityGroup", {
      vpc,
      description: `Tasks of the bridge ${bridgeId}`,
      allowAllOutbound: false,
    });
    // Names are asked for at the VPC's own resolver and the task's metadata at the host: security groups concern neither.
    group.addEgressRule(ec2.Peer.anyIpv4(), ec2.Port.tcp(443), "AWS services and the image registry");
    for (const cidr of this.props.brokerCidrs ?? ["0.0.0.0/0"]) {
      for (const port of this.brokerPorts())
        group.addEgressRule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), "MQTT broker");
    }
    group.addIngressRule(group, ec2.Port.tcp(PORTS.transport), "Transport between members");
    group.addEgressRule(group, ec2.Port.tcp(PORTS.transport), "Transport between members");
    return group;
  }

  /** A broker on 443 needs no rule of its own, unless its address range is smaller; 443 is open anyway. */
  private brokerPorts(): number[] {
    return [...new Set(this.props.brokerPorts ?? [8883])].filter((port) => port !== 443).sort((a, b) => a - b);
  }

  private taskRole(kind: TaskKind): iam.Role {
    const role = new iam.Role(this, `${kind}-task-role`, {
      assumedBy: new iam.ServicePrincipal("ecs-tasks.amazonaws.com"),
      description: `What the ${kind} tasks of the bridge ${this.props.bridgeId} may do`,
    });
    const { tables, destinations = [], sources = [], sourcesByName = [], writesLedger, takesCommands } = this.props;
    const { clusterName } = this.cluster;
    const tasks = Stack.of(this).formatArn({ service: "ecs", resource: "task", resourceName: `${clusterName}/*` });
    const services = Stack.of(this).formatArn({
      service: "ecs",
      resource: "service",
      resourceName: `${clusterName}/*`,
    });
    const ofEcs = { tasks, services, cluster: this.cluster.clusterArn };
    const resources = {
      ...NO_QUEUES,
      tables,
      destinations,
      sources,
      sourcesByName,
      writesLedger,
      takesCommands,
      ...ofEcs,
    };
    for (const statement of statements(kind, resources)) role.addToPolicy(statement);
    const named = secretStatements(this, this.props.secretPlaces ?? []);
    for (const statement of named) role.addToPolicy(statement);
    const keys = (this.props.secretKeys ?? []).map((key) => key.keyArn);
    if (named.length > 0 && keys.length > 0)
      role.addToPolicy(new iam.PolicyStatement({ sid: "SecretKeys", actions: ["kms:Decrypt"], resources: keys }));
    acknowledgePattern(role, tasks, "The tasks of one cluster, which ECS names when they start.");
    if (kind === "worker")
      acknowledgePattern(role, services, "The services of one cluster, which are made after the role.");
    if (kind === "control")
      acknowledgePattern(role, "*", "A list of tasks knows no resources; a condition names the cluster.");
    return role;
  }

  private executionRole(kind: TaskKind): iam.Role {
    const role = new iam.Role(this, `${kind}-execution-role`, {
      assumedBy: new iam.ServicePrincipal("ecs-tasks.amazonaws.com"),
      description: `What ECS may do to start the ${kind} tasks of the bridge ${this.props.bridgeId}`,
    });
    const keys = (this.props.secretKeys ?? []).map((key) => key.keyArn);
    if (keys.length > 0) {
      role.addToPolicy(new iam.PolicyStatement({ sid: "SecretKeys", actions: ["kms:Decrypt"], resources: keys }));
    }
    acknowledge(
      role,
      "AwsSolutions-IAM5[Resource::*]",
      "ecr:GetAuthorizationToken, the log-in of ECR, knows no resources.",
    );
    acknowledgeOwnStreams(role, this.logGroup);
    return role;
  }

  private taskDefinition(kind: TaskKind): ecs.FargateTaskDefinition {
    const { props, architecture } = this;
    const definition = new ecs.FargateTaskDefinition(this, `${kind}-task`, {
      cpu: props.cpu ?? 512,
      memoryLimitMiB: props.memoryLimitMiB ?? 1024,
      taskRole: this.taskRoles[kind],
      executionRole: this.executionRoles[kind],
      runtimePlatform: {
        cpuArchitecture: architecture === "arm64" ? ecs.CpuArchitecture.ARM64 : ecs.CpuArchitecture.X86_64,
        operatingSystemFamily: ecs.OperatingSystemFamily.LINUX,
      },
    });
    const { image, placeholder } = resolveImage(definition, props.image, architecture, props.imageContext);
    if (placeholder) {
      (definition.node.defaultChild as ecs.CfnTaskDefinition).addMetadata(PLACEHOLDER, "scripts/build-image");
      blockDeploy(this, `Image of the ${kind} task`, "scripts/build-image");
    }
    definition.addContainer("causeway", {
      containerName: "causeway",
      image,
      entryPoint: ["causeway"],
      command: ["run", "--role", kind],
      environment: { ...props.environment, CAUSEWAY_CONFIG_DIGEST: props.configuration.digest },
      secrets: { ...props.secrets, CAUSEWAY_CONFIG_INLINE: props.configuration.containerSecret },
      user: USER,
      readonlyRootFilesystem: true,
      stopTimeout: Duration.seconds(props.stopTimeoutSeconds ?? 120),
      healthCheck: {
        command: ["CMD", "causeway", "healthcheck"],
        interval: Duration.seconds(30),
        timeout: Duration.seconds(5),
        retries: 3,
        startPeriod: Duration.seconds(60),
      },
      // A log that cannot be written must not stop messages.
      logging: ecs.LogDriver.awsLogs({
        logGroup: this.logGroup,
        streamPrefix: kind,
        mode: ecs.AwsLogDriverMode.NON_BLOCKING,
      }),
      portMappings: Object.entries(PORTS).map(([name, containerPort]) => ({ name, containerPort })),
    });
    acknowledge(
      definition,
      "AwsSolutions-ECS2",
      "Names and addresses only; what is secret comes from SSM and Secrets Manager.",
    );
    return definition;
  }

  private service(kind: TaskKind, vpcSubnets: ec2.SubnetSelection): ecs.FargateService {
    const control = kind === "control";
    return new ecs.FargateService(this, `${kind}-service`, {
      cluster: this.cluster,
      taskDefinition: this.taskDefinitions[kind],
      desiredCount: control ? 1 : (this.props.workerDesiredCount ?? 2),
      minHealthyPercent: control ? 0 : 100,
      maxHealthyPercent: control ? 100 : 200,
      // Rebalancing starts before it stops: harmless for workers, a second task for control. It is on unless switched off.
      availabilityZoneRebalancing: control
        ? ecs.AvailabilityZoneRebalancing.DISABLED
        : ecs.AvailabilityZoneRebalancing.ENABLED,
      circuitBreaker: { enable: true, rollback: true },
      assignPublicIp: false,
      enableExecuteCommand: false,
      vpcSubnets,
      securityGroups: control ? [this.securityGroup, this.controlSecurityGroup] : [this.securityGroup],
      propagateTags: ecs.PropagatedTagSource.SERVICE,
    });
  }
}

function checkServiceProps(props: BridgeServiceProps): SynthFault[] {
  return [
    ...checkTasks(props),
    ...checkBridgeId(props.bridgeId),
    ...checkVariables(props.environment ?? {}, props.secrets ?? {}),
  ];
}

/** What of the tasks is checked before anything is made. */
type TaskProps = Pick<
  BridgeServiceProps,
  | "workerDesiredCount"
  | "image"
  | "cpu"
  | "memoryLimitMiB"
  | "stopTimeoutSeconds"
  | "drainSeconds"
  | "stepDownSeconds"
  | "shutdownSeconds"
>;

/** How many tasks there are, what they run, how large they are, and how long they may take to stop. */
export function checkTasks(props: TaskProps): SynthFault[] {
  const { cpu = 512, memoryLimitMiB = 1024, stopTimeoutSeconds = 120 } = props;
  return [
    ...checkWorkerCount(props.workerDesiredCount ?? 2),
    ...checkImage(props.image),
    ...checkStopTimeout(stopTimeoutSeconds, props.drainSeconds ?? 10, props.stepDownSeconds ?? 15),
    ...checkShutdown(stopTimeoutSeconds, props.shutdownSeconds ?? 30),
    ...checkSize(cpu, memoryLimitMiB),
  ];
}

/** A name that may stand in names of resources; a parameter's name may not begin with what AWS keeps for itself. */
export function checkBridgeId(bridgeId: string): SynthFault[] {
  if (!Token.isUnresolved(bridgeId) && /^(?!aws|ssm)[a-z][a-z0-9_-]{0,63}$/i.test(bridgeId)) return [];
  return [refuseProp("CAUSEWAY_PRP_008", "bridge.id", `"${bridgeId}" cannot stand in names of resources`)];
}

/** A pair of CPU and memory that Fargate offers. */
export function checkSize(cpu: number, memoryLimitMiB: number): SynthFault[] {
  const range = FARGATE_MEMORY[cpu];
  const fits =
    range !== undefined && memoryLimitMiB >= range[0] && memoryLimitMiB <= range[1] && memoryLimitMiB % range[2] === 0;
  if (fits) return [];
  return [
    refuseProp("CAUSEWAY_PRP_005", "cpu", `Fargate offers no task with ${cpu} CPU units and ${memoryLimitMiB} MiB`),
  ];
}

/** Variables of a container: proper names, none given twice, none that the stack sets itself. */
export function checkVariables(
  environment: Readonly<Record<string, unknown>>,
  secrets: Readonly<Record<string, unknown>>,
): SynthFault[] {
  const faults: SynthFault[] = [];
  for (const name of [...Object.keys(environment), ...Object.keys(secrets)]) {
    if (!/^[A-Z_][A-Z0-9_]*$/.test(name)) {
      faults.push(refuseProp("CAUSEWAY_PRP_004", name, `"${name}" is not a name of a variable`));
    } else if (/^(CAUSEWAY_CONFIG|AWS_|ECS_)/.test(name)) {
      faults.push(refuseProp("CAUSEWAY_PRP_004", name, `"${name}" is set by the stack or by ECS`));
    }
  }
  for (const name of Object.keys(secrets)) {
    if (name in environment)
      faults.push(refuseProp("CAUSEWAY_PRP_004", name, `"${name}" is given as a secret and as a plain value`));
  }
  return faults;
}
