import { Duration, Stack, type StackProps } from "aws-cdk-lib";
import type * as cloudwatch from "aws-cdk-lib/aws-cloudwatch";
import { SnsAction } from "aws-cdk-lib/aws-cloudwatch-actions";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as elbv2 from "aws-cdk-lib/aws-elasticloadbalancingv2";
import * as kms from "aws-cdk-lib/aws-kms";
import * as logs from "aws-cdk-lib/aws-logs";
import * as sns from "aws-cdk-lib/aws-sns";
import * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import { SynthRefused } from "../checks/fault.ts";
import type { ImageSource } from "../checks/image.ts";
import { acknowledge } from "../constructs/acknowledge.ts";
import { refuseProp } from "../constructs/faults.ts";
import { CausewayDynamoDBHA } from "../constructs/ha.ts";
import type { LoadBalancerAttachmentProps } from "../constructs/load-balancer.ts";
import type { BridgeNetworkProps } from "../constructs/network.ts";
import { containerSecrets } from "../constructs/secrets.ts";
import { BridgeTables, defaultTableNames } from "../constructs/tables.ts";
import {
  configFiles,
  madeQueues,
  QUEUE_VARIABLE,
  type QueueSetting,
  queueSettings,
  type Settings,
  variables,
} from "../settings.ts";
import type { CausewayStatefulStack } from "./stateful.ts";

/** Props of {@link CausewayStatelessStack}. */
export interface CausewayStatelessStackProps extends StackProps {
  /** What is deployed. */
  readonly settings: Settings;
  /**
   * The stack that makes tables and queue.
   *
   * @default - all of them exist
   */
  readonly state?: CausewayStatefulStack;
  /**
   * The folder of `scripts/build-lambdas`.
   *
   * @default - `dist/lambdas` of this tree
   */
  readonly lambdaFolder?: string;
  /**
   * The folder that `scripts/build-image` filled.
   *
   * @default - `dist/image` of this tree
   */
  readonly imageContext?: string;
}

/** What can be deleted and made again: network, tasks, functions, alarms. */
export class CausewayStatelessStack extends Stack {
  /** The bridge. */
  public readonly bridge: CausewayDynamoDBHA;

  public constructor(scope: Construct, id: string, props: CausewayStatelessStackProps) {
    super(scope, id, { description: "Causeway: network, tasks and functions", ...props });
    const { settings, state } = props;
    if (state !== undefined) this.addStackDependency(state, "The tasks need the tables");
    const network = this.network(settings);
    const queues = Object.entries(queueSettings(settings)).map(([variable, queue]) => {
      const id = variable === QUEUE_VARIABLE ? "Queue" : `Queue-${variable}`;
      return [variable, this.queue(id, queue)] as const;
    });
    this.bridge = new CausewayDynamoDBHA(this, "Bridge", {
      bridgeConfig: { files: configFiles(settings), environment: variables(settings), checker: settings.checker },
      managedSubscriptionBaselines: settings.managedSubscriptionBaselines,
      workerDesiredCount: settings.workerDesiredCount,
      image: imageSource(settings.image ?? "tree"),
      imageContext: props.imageContext,
      architecture: settings.architecture,
      queues: Object.fromEntries(queues),
      redriveQueueDeadLetters: this.deadLetters(settings),
      secrets: containerSecrets(this, settings.secrets ?? {}),
      secretKeys: settings.secretKeyArns?.map((arn, index) => kms.Key.fromKeyArn(this, `SecretKey-${index}`, arn)),
      // By name: the tables stay where they are whatever becomes of this stack.
      tables: BridgeTables.fromTableNames(this, "Tables", defaultTableNames(settings.tablePrefix)),
      network,
      cluster: this.cluster(settings, network.vpc),
      cpu: settings.cpu,
      memoryLimitMiB: settings.memoryLimitMiB,
      logGroup:
        settings.logGroupName === undefined
          ? undefined
          : logs.LogGroup.fromLogGroupName(this, "Log", settings.logGroupName),
      logRetention: settings.logRetentionDays ?? logs.RetentionDays.ONE_MONTH,
      brokerCidrs: settings.brokerCidrs,
      loadBalancer: this.loadBalancer(settings),
      lambdaFolder: props.lambdaFolder,
      alarms: (settings.alarms ?? true) && { actions: this.alarmActions(settings) },
      housekeeping:
        settings.housekeepingMinutes === undefined ? {} : { interval: Duration.minutes(settings.housekeepingMinutes) },
    });
    for (const [name, output] of Object.entries(this.bridge.outputs)) output.overrideLogicalId(name);
  }

  private network(settings: Settings): BridgeNetworkProps {
    const { vpc = {} } = settings;
    if (!("id" in vpc)) return { ...vpc, interfaceEndpoints: vpc.interfaceEndpoints ?? vpc.natGateways === 0 };
    const found = ec2.Vpc.fromVpcAttributes(this, "Vpc", {
      vpcId: vpc.id,
      availabilityZones: [...vpc.availabilityZones],
      privateSubnetIds: [...vpc.privateSubnetIds],
      privateSubnetRouteTableIds: vpc.privateSubnetRouteTableIds && [...vpc.privateSubnetRouteTableIds],
    });
    if (vpc.privateSubnetRouteTableIds === undefined) {
      acknowledge(
        found,
        "Annotation::@aws-cdk/aws-ec2:noSubnetRouteTableId",
        "No route is added, so that no route table is needed.",
      );
    }
    return { vpc: found, gatewayEndpoints: vpc.privateSubnetRouteTableIds !== undefined };
  }

  /** By name or ARN, like the tables: neither stack then holds the other fast. */
  private queue(id: string, queue: QueueSetting): sqs.IQueue {
    if ("arn" in queue) return sqs.Queue.fromQueueAttributes(this, id, { queueArn: queue.arn, keyArn: queue.keyArn });
    const queueArn = this.formatArn({ service: "sqs", resource: queue.name });
    return sqs.Queue.fromQueueAttributes(this, id, { queueArn, queueName: queue.name });
  }

  private deadLetters(settings: Settings): sqs.IQueue[] {
    if (!settings.redriveQueueDeadLetters) return [];
    const made = madeQueues(settings);
    if (made.length === 0) {
      throw new SynthRefused([
        refuseProp(
          "CAUSEWAY_PRP_013",
          "redriveQueueDeadLetters",
          "the dead-letter queue of a queue that exists is not known here",
        ),
      ]);
    }
    return made.map(([variable, { name }]) => {
      const id = variable === QUEUE_VARIABLE ? "DeadLetterQueue" : `DeadLetterQueue-${variable}`;
      return this.queue(id, { name: `${name}-dlq` });
    });
  }

  private alarmActions(settings: Settings): cloudwatch.IAlarmAction[] {
    if (settings.alarmTopicArn === undefined) return [];
    return [new SnsAction(sns.Topic.fromTopicArn(this, "AlarmTopic", settings.alarmTopicArn))];
  }

  private cluster(settings: Settings, vpc: ec2.IVpc | undefined): ecs.ICluster | undefined {
    if (settings.clusterName === undefined) return undefined;
    if (vpc === undefined) {
      throw new SynthRefused([
        refuseProp(
          "CAUSEWAY_PRP_012",
          "clusterName",
          "a cluster that exists is in a VPC that exists, and `vpc` names none",
        ),
      ]);
    }
    return ecs.Cluster.fromClusterAttributes(this, "Cluster", { clusterName: settings.clusterName, vpc });
  }

  private loadBalancer(settings: Settings): LoadBalancerAttachmentProps | undefined {
    const { loadBalancer } = settings;
    if (loadBalancer === undefined) return undefined;
    const { listenerArn, securityGroupId, priority, transportPaths, adminHosts } = loadBalancer;
    const securityGroup = ec2.SecurityGroup.fromSecurityGroupId(this, "LoadBalancerGroup", securityGroupId, {
      mutable: false,
    });
    const listener = elbv2.ApplicationListener.fromApplicationListenerAttributes(this, "Listener", {
      listenerArn,
      securityGroup,
    });
    return {
      listener,
      securityGroup,
      priority,
      transport: transportPaths && [elbv2.ListenerCondition.pathPatterns([...transportPaths])],
      admin: adminHosts && [elbv2.ListenerCondition.hostHeaders([...adminHosts])],
    };
  }
}

function imageSource(image: string): ImageSource {
  return image === "tree" ? { kind: "tree" } : { kind: "registry", uri: image };
}
