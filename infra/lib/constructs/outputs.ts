import { CfnOutput } from "aws-cdk-lib";
import type * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import type { SessionFacts } from "../config-document.ts";
import type { BridgeFunction } from "./function.ts";
import type { QueueSource } from "./queue-ends.ts";
import type { BridgeService } from "./service.ts";

/** What the command lines are about. */
interface Bridge extends Construct {
  readonly document: { readonly sessions: readonly SessionFacts[] };
  readonly service: BridgeService;
  readonly housekeeping: BridgeFunction;
  readonly redrive: BridgeFunction;
  readonly destinations: readonly sqs.IQueue[];
  readonly sources: readonly QueueSource[];
}

/** Outputs that are command lines, ready to be copied: invoke, follow the log, publish a message, and see it arrive. */
export function commandLines(bridge: Bridge): Record<string, CfnOutput> {
  const session = bridge.document.sessions.find((found) => found.exclusive);
  const topic = exampleTopic(session?.filters[0] ?? "#");
  const [queue] = bridge.destinations;
  const made: Record<string, CfnOutput> = {};
  const print = (name: string, description: string, value: string) => {
    made[name] = new CfnOutput(bridge, name, { description, value });
  };
  const { redrive, housekeeping, service } = bridge;
  print(
    "InvokeRedrive",
    "Counts the dead letters that could be put back on their way; with dry_run false it does so",
    invoke(redrive.handler.functionName, { all: true, dry_run: true, limit: 100, request_id: "op-1" }),
  );
  print(
    "InvokeHousekeeping",
    "Counts what waits and what housekeeping would do",
    invoke(housekeeping.handler.functionName, { op: "sweep", dry_run: true }),
  );
  print("TailLogs", "Follows the log of the tasks", `aws logs tail ${service.logGroup.logGroupName} --follow`);
  print(
    "Publish",
    "Publishes a message; a broker of a private authority needs --cafile instead, one that asks for a log-in -u and -P too",
    `mosquitto_pub ${address(session)} -q 1 -t '${topic}' -m '{"hello":"causeway"}'`,
  );
  if (queue !== undefined) {
    print(
      "Receive",
      "Waits for a message in the queue",
      `aws sqs receive-message --queue-url ${queue.queueUrl} --wait-time-seconds 20 --message-attribute-names All`,
    );
  }
  const [source] = bridge.sources;
  if (source !== undefined) {
    print(
      "Send",
      `Sends a message to the queue of receiver ${source.receiver}`,
      `aws sqs send-message --queue-url ${source.queue.queueUrl} --message-body '{"hello":"causeway"}'${group(source.queue)}`,
    );
  }
  return made;
}

/** What a FIFO queue asks for besides. */
function group(queue: sqs.IQueue): string {
  return queue.fifo ? ` --message-group-id demo --message-deduplication-id "$(date +%s)"` : "";
}

function invoke(functionName: string, event: object): string {
  const payload = JSON.stringify(event);
  return `aws lambda invoke --function-name ${functionName} --cli-binary-format raw-in-base64-out --payload '${payload}' /dev/stdout`;
}

/** A session's broker as arguments of the mosquitto clients. */
function address(session: SessionFacts | undefined): string {
  const text = session?.brokerUrl ?? "";
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const host = url?.hostname.replace(/^\[|\]$/g, "") ?? "BROKER";
  const encrypted = ["tls:", "ssl:", "mqtts:"].includes(url?.protocol ?? "");
  return `-h ${host} -p ${session?.brokerPorts[0] ?? 8883}${encrypted ? " --tls-use-os-certs" : ""}`;
}

/** A topic that a filter matches. */
function exampleTopic(filter: string): string {
  return filter
    .replace(/^\$share\/[^/]+\//, "")
    .replace(/\+/g, "demo")
    .replace(/#$/, "demo");
}
