import * as iam from "aws-cdk-lib/aws-iam";
import * as lambda from "aws-cdk-lib/aws-lambda";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import { BridgeFunction, type BridgeFunctionProps } from "./function.ts";
import { NO_QUEUES } from "./permissions.ts";

/** Props of {@link RedriveFunction}. */
export interface RedriveFunctionProps extends BridgeFunctionProps {
  /**
   * Queues that the bridge sends to: for letters of routes without an outbox.
   *
   * @default - none
   */
  readonly destinations?: readonly sqs.IQueue[];

  /**
   * Queues that the bridge receives from, into which `mode: sqs` may move messages back.
   *
   * @default - none
   */
  readonly sources?: readonly sqs.IQueue[];

  /**
   * Dead-letter queues of SQS that `mode: sqs` may move back. The queues that they belong to must be among `destinations` or `sources`.
   *
   * @default - none; that mode is then refused by IAM
   */
  readonly deadLetterQueues?: readonly sqs.IQueue[];

  /**
   * A queue of redrive requests, one event in each message. Its redrive policy should lead failures to a dead-letter queue, and its visibility
   * timeout be at least six times the function's.
   *
   * @default - the function is only invoked directly
   */
  readonly requestQueue?: sqs.IQueue;
}

/** What puts dead letters back on their way: chosen by filters, at a rate, and only counted unless told otherwise. */
export class RedriveFunction extends BridgeFunction {
  /** What feeds the function from the queue of requests, where there is one. */
  public readonly requests?: lambda.EventSourceMapping;

  public constructor(scope: Construct, id: string, props: RedriveFunctionProps) {
    super(scope, id, "redrive", `Redrives dead letters of the bridge ${props.bridgeId}`, props, {
      ...NO_QUEUES,
      destinations: props.destinations ?? [],
      sources: props.sources ?? [],
      deadLetterQueues: props.deadLetterQueues ?? [],
    });
    if (props.requestQueue !== undefined) {
      this.role.addToPolicy(
        new iam.PolicyStatement({
          sid: "Requests",
          actions: ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
          resources: [props.requestQueue.queueArn],
        }),
      );
      this.requests = new lambda.EventSourceMapping(this, "Requests", {
        target: this.handler,
        eventSourceArn: props.requestQueue.queueArn,
        batchSize: 1,
        maxConcurrency: 2,
        reportBatchItemFailures: true,
      });
      this.requests.node.addDependency(this.role);
    }
  }
}
