import { type Duration, RemovalPolicy, Duration as Time, Token } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import * as scheduler from "aws-cdk-lib/aws-scheduler";
import * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import { type SynthFault, SynthRefused } from "../checks/fault.ts";
import { acknowledge } from "./acknowledge.ts";
import { refuseProp } from "./faults.ts";
import { BridgeFunction, type BridgeFunctionProps } from "./function.ts";
import { NO_QUEUES } from "./permissions.ts";

/** Props of {@link HousekeepingFunction}. */
export interface HousekeepingFunctionProps extends BridgeFunctionProps {
  /**
   * How often it runs: whole minutes.
   *
   * @default Duration.minutes(5)
   */
  readonly interval?: Duration;

  /**
   * How often a run that failed is tried again before it goes to the dead-letter queue: 0, 1 or 2.
   *
   * @default 2
   */
  readonly retryAttempts?: number;

  /**
   * How many items one run works on at most.
   *
   * @default 5000
   */
  readonly maxItems?: number;

  /**
   * Whether the schedule is switched on.
   *
   * @default true
   */
  readonly enabled?: boolean;
}

/**
 * What runs every few minutes behind the bridge: what has expired becomes a dead letter, what belongs to nobody any more too, garbage goes, and
 * depth and age are counted exactly. A live owner always wins over it.
 */
export class HousekeepingFunction extends BridgeFunction {
  /** When it runs. */
  public readonly schedule: scheduler.CfnSchedule;
  /** What the scheduler may do: call this function, and note a failure in the queue below. */
  public readonly schedulerRole: iam.Role;
  /** Runs that failed for good. */
  public readonly deadLetterQueue: sqs.Queue;
  /** How often it runs, in minutes. */
  public readonly intervalMinutes: number;

  public constructor(scope: Construct, id: string, props: HousekeepingFunctionProps) {
    super(scope, id, "housekeeping", `Housekeeping of the bridge ${props.bridgeId}`, props, NO_QUEUES);
    const { interval = Time.minutes(5), retryAttempts = 2, maxItems = 5000 } = props;
    SynthRefused.ifAny([...checkInterval(interval), ...checkRetries(retryAttempts)]);
    this.intervalMinutes = interval.toMinutes();
    this.deadLetterQueue = new sqs.Queue(this, "DeadLetterQueue", {
      enforceSSL: true,
      encryption: sqs.QueueEncryption.SQS_MANAGED,
      retentionPeriod: Time.days(14),
      removalPolicy: RemovalPolicy.DESTROY,
    });
    acknowledge(this.deadLetterQueue, "AwsSolutions-SQS3", "It is the dead-letter queue of the schedule.");
    this.schedulerRole = new iam.Role(this, "SchedulerRole", {
      assumedBy: new iam.ServicePrincipal("scheduler.amazonaws.com"),
      description: `Runs housekeeping of the bridge ${props.bridgeId}`,
    });
    const allow = (sid: string, action: string, resource: string) =>
      this.schedulerRole.addToPolicy(new iam.PolicyStatement({ sid, actions: [action], resources: [resource] }));
    allow("Invoke", "lambda:InvokeFunction", this.handler.functionArn);
    allow("Failed", "sqs:SendMessage", this.deadLetterQueue.queueArn);
    // The event source of CDK would also allow every version of the function.
    this.schedule = new scheduler.CfnSchedule(this, "Schedule", {
      description: `Housekeeping of the bridge ${props.bridgeId}`,
      scheduleExpression: `rate(${this.intervalMinutes} minute${this.intervalMinutes === 1 ? "" : "s"})`,
      flexibleTimeWindow: { mode: "OFF" },
      state: (props.enabled ?? true) ? "ENABLED" : "DISABLED",
      target: {
        arn: this.handler.functionArn,
        roleArn: this.schedulerRole.roleArn,
        input: JSON.stringify({ op: "sweep", dry_run: false, max_items: maxItems, continuation: null }),
        retryPolicy: { maximumRetryAttempts: retryAttempts, maximumEventAgeInSeconds: 3600 },
        deadLetterConfig: { arn: this.deadLetterQueue.queueArn },
      },
    });
    // The first run needs its permissions.
    this.schedule.node.addDependency(this.schedulerRole);
  }
}

function checkInterval(interval: Duration): SynthFault[] {
  const seconds = interval.isUnresolved() ? Number.NaN : interval.toSeconds({ integral: false });
  if (seconds >= 60 && seconds % 60 === 0) return [];
  return [
    refuseProp("CAUSEWAY_PRP_006", "housekeeping.interval", `${interval.toString()} is not a whole number of minutes`),
  ];
}

function checkRetries(retries: number): SynthFault[] {
  if (!Token.isUnresolved(retries) && [0, 1, 2].includes(retries)) return [];
  return [
    refuseProp(
      "CAUSEWAY_PRP_007",
      "housekeeping.retryAttempts",
      `${retries} retries would start runs over one another`,
    ),
  ];
}
