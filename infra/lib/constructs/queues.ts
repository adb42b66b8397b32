import { Duration, RemovalPolicy, Token } from "aws-cdk-lib";
import * as sqs from "aws-cdk-lib/aws-sqs";
import { Construct } from "constructs";
import { type SynthFault, SynthRefused } from "../checks/fault.ts";
import { refuseProp } from "./faults.ts";

/** Props of {@link BridgeQueue}. */
export interface BridgeQueueProps {
  /**
   * The literal name of the queue; its dead-letter queue is called `<name>-dlq`.
   *
   * @default - a generated name
   */
  readonly queueName?: string;

  /**
   * How long a message stays until somebody takes it.
   *
   * @default Duration.days(14)
   */
  readonly retentionPeriod?: Duration;

  /**
   * How long a message that a consumer took stays hidden from the others.
   *
   * @default Duration.seconds(30)
   */
  readonly visibilityTimeout?: Duration;

  /**
   * After how many receives without a delete a message moves to the dead-letter queue.
   *
   * @default 10
   */
  readonly maxReceiveCount?: number;
}

/** A standard queue that the bridge delivers to, and the dead-letter queue of its consumers. Both encrypted, both only over TLS, both retained. */
export class BridgeQueue extends Construct {
  /** The queue. */
  public readonly queue: sqs.Queue;
  /** Where messages go that its consumers could not work off. Not the bridge's own dead letters, which stand in a table. */
  public readonly deadLetterQueue: sqs.Queue;

  public constructor(scope: Construct, id: string, props: BridgeQueueProps = {}) {
    super(scope, id);
    SynthRefused.ifAny(checkQueueName(props.queueName));
    const common = {
      enforceSSL: true,
      encryption: sqs.QueueEncryption.SQS_MANAGED,
      retentionPeriod: props.retentionPeriod ?? Duration.days(14),
      removalPolicy: RemovalPolicy.RETAIN,
    };
    this.deadLetterQueue = new sqs.Queue(this, "DeadLetterQueue", {
      ...common,
      queueName: props.queueName === undefined ? undefined : `${props.queueName}-dlq`,
      retentionPeriod: Duration.days(14),
    });
    this.queue = new sqs.Queue(this, "Queue", {
      ...common,
      queueName: props.queueName,
      visibilityTimeout: props.visibilityTimeout ?? Duration.seconds(30),
      deadLetterQueue: { queue: this.deadLetterQueue, maxReceiveCount: props.maxReceiveCount ?? 10 },
    });
  }
}

/** A name of a standard queue that leaves room for the name of its dead-letter queue. */
function checkQueueName(name: string | undefined): SynthFault[] {
  if (name === undefined || Token.isUnresolved(name) || /^[A-Za-z0-9_-]{1,76}$/.test(name)) return [];
  return [refuseProp("CAUSEWAY_PRP_014", "queue.name", `"${name}" is not the name of a standard queue`)];
}
