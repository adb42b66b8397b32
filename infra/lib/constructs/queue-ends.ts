import { Stack } from "aws-cdk-lib";
import * as sqs from "aws-cdk-lib/aws-sqs";
import type { Construct } from "constructs";
import type { SynthFault } from "../checks/fault.ts";
import { type BridgeConfig, standIn } from "../config-document.ts";
import { refuseProp } from "./faults.ts";

/** A queue that a receiver takes messages from. */
export interface QueueSource {
  /** The receiver's id. */
  readonly receiver: string;
  /** The queue. */
  readonly queue: sqs.IQueue;
  /** Whether the configuration says its name alone, so that the program asks for its address. */
  readonly byName: boolean;
}

/** The queues of a configuration, each once: those that it names by a variable, and those that it names by address. */
export class QueueEnds {
  /** Where it sends to. */
  public readonly destinations: readonly sqs.IQueue[];
  /** Where it receives from. */
  public readonly sources: readonly QueueSource[];
  /** Addresses that say nothing. */
  public readonly faults: SynthFault[] = [];
  private readonly scope: Construct;
  private readonly byAddress = new Map<string, sqs.IQueue>();

  public constructor(scope: Construct, value: BridgeConfig, queues: Readonly<Record<string, sqs.IQueue>>) {
    this.scope = scope;
    for (const [name, queue] of Object.entries(queues)) this.byAddress.set(standIn(name), queue);
    const known = new Map(Object.values(queues).map((queue) => [queue.queueName, queue]));
    const destinations = (value.senders ?? []).map((sender, index) =>
      sender.transport === "sqs" ? this.addressed(`senders[${index}].options`, sender.options?.queue_url) : undefined,
    );
    const sources = (value.receivers ?? []).map((receiver, index): QueueSource | undefined => {
      if (receiver.transport !== "sqs") return undefined;
      const [at, id] = [`receivers[${index}].options`, receiver.id ?? ""];
      const { queue_url: url, queue_name: name } = receiver.options ?? {};
      const queue = url === undefined ? this.named(at, name, known) : this.addressed(at, url);
      return queue && { receiver: id, queue, byName: url === undefined };
    });
    this.destinations = [...new Set(destinations.filter((queue) => queue !== undefined))];
    this.sources = sources.filter((source) => source !== undefined);
  }

  /** The queue of an address. */
  private addressed(path: string, address: unknown): sqs.IQueue | undefined {
    if (typeof address !== "string") return undefined;
    const known = this.byAddress.get(address);
    if (known !== undefined) return known;
    const arn = arnOf(this.scope, address);
    if (arn === undefined) {
      this.refuse(
        `${path}.queue_url`,
        "no queue can be told from this address, so that nobody can be allowed to use it",
      );
      return undefined;
    }
    return this.imported(address, arn);
  }

  /** The queue of a name, in the account and region of the stack. */
  private named(path: string, name: unknown, known: ReadonlyMap<string, sqs.IQueue>): sqs.IQueue | undefined {
    if (typeof name !== "string") return undefined;
    const given = known.get(name) ?? this.byAddress.get(`name:${name}`);
    if (given !== undefined) return given;
    if (!/^[A-Za-z0-9_-]{1,75}(\.fifo)?$/.test(name)) {
      this.refuse(`${path}.queue_name`, "this is not the name of a queue; a variable of `queues` holds an address");
      return undefined;
    }
    return this.imported(`name:${name}`, Stack.of(this.scope).formatArn({ service: "sqs", resource: name }));
  }

  private imported(key: string, arn: string): sqs.IQueue {
    const queue = sqs.Queue.fromQueueArn(this.scope, `Queue-${this.byAddress.size}`, arn);
    this.byAddress.set(key, queue);
    return queue;
  }

  private refuse(path: string, message: string): void {
    this.faults.push(refuseProp("CAUSEWAY_PRP_003", path, message));
  }
}

/** `https://sqs.eu-west-1.amazonaws.com/123456789012/name` as an ARN. */
function arnOf(scope: Construct, address: string): string | undefined {
  const parts =
    /^https:\/\/(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?\/(\d+)\/([A-Za-z0-9_-]{1,75}(?:\.fifo)?)$/.exec(
      address,
    );
  if (parts === null) return undefined;
  const [, modern, legacy, account, resource] = parts;
  const region = modern ?? legacy;
  if (region === undefined || account === undefined || resource === undefined) return undefined;
  return Stack.of(scope).formatArn({ service: "sqs", region, account, resource });
}
