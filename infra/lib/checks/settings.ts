import { refuseProp } from "../constructs/faults.ts";
import {
  type LoadBalancerSetting,
  type NewVpcSetting,
  QUEUE_VARIABLE,
  type QueueSetting,
  type Settings,
  type VpcSetting,
  variables,
} from "../settings.ts";
import { refuse } from "./codes.ts";
import type { SynthFault } from "./fault.ts";

/** What a setting is written as. A nested one has fields of its own. */
type Kind = Plain | Fields | ByName;
type Plain = "a text" | "a number" | "true or false" | "a list of texts" | "texts by name" | "lists of texts by name";
interface Fields {
  readonly [name: string]: Kind;
}
/** Settings of one shape under names that are free. */
class ByName {
  public readonly fields: Fields;
  public constructor(fields: Fields) {
    this.fields = fields;
  }
}

/** The fields of every variant of a setting. */
type FieldsOf<Setting> = { readonly [Name in Setting extends unknown ? keyof Setting : never]-?: Kind };

const QUEUE: FieldsOf<QueueSetting> = {
  name: "a text",
  maxReceiveCount: "a number",
  arn: "a text",
  keyArn: "a text",
};
const VPC: FieldsOf<VpcSetting | NewVpcSetting> = {
  id: "a text",
  availabilityZones: "a list of texts",
  privateSubnetIds: "a list of texts",
  privateSubnetRouteTableIds: "a list of texts",
  natGateways: "a number",
  cidr: "a text",
  interfaceEndpoints: "true or false",
  flowLogs: "true or false",
};
const LOAD_BALANCER: FieldsOf<LoadBalancerSetting> = {
  listenerArn: "a text",
  securityGroupId: "a text",
  priority: "a number",
  transportPaths: "a list of texts",
  adminHosts: "a list of texts",
};

/** Every setting. The compiler holds it to the interface, and this holds the settings to it where nobody compiles them. */
const SETTINGS: FieldsOf<Settings> = {
  bridgeId: "a text",
  brokerUrl: "a text",
  queue: QUEUE,
  queues: new ByName(QUEUE),
  topicFilter: "a text",
  managedSubscriptionBaselines: "lists of texts by name",
  configFiles: "a list of texts",
  variables: "texts by name",
  secrets: "texts by name",
  secretKeyArns: "a list of texts",
  workerDesiredCount: "a number",
  image: "a text",
  architecture: "a text",
  cpu: "a number",
  memoryLimitMiB: "a number",
  tablePrefix: "a text",
  existingTables: "true or false",
  terminationProtection: "true or false",
  vpc: VPC,
  clusterName: "a text",
  logGroupName: "a text",
  logRetentionDays: "a number",
  brokerCidrs: "a list of texts",
  loadBalancer: LOAD_BALANCER,
  alarms: "true or false",
  alarmTopicArn: "a text",
  housekeepingMinutes: "a number",
  redriveQueueDeadLetters: "true or false",
  checker: "a text",
};

/** Settings that are needed in any case, and fields of nested ones. A baseline that is missing is told by a rule of its own. */
const REQUIRED: readonly (keyof Settings)[] = ["bridgeId", "brokerUrl", "queue"];

/**
 * Names and shapes of the settings, as the compiler would check them. `cdk synth` runs the settings without compiling them: a misspelt name would
 * otherwise be a setting that is left out.
 */
export function checkSettings(settings: unknown): SynthFault[] {
  if (!isMap(settings)) {
    return [refuseProp("CAUSEWAY_PRP_016", "settings", "the file exports no `settings`")];
  }
  const faults = shape(settings, SETTINGS, "");
  for (const name of REQUIRED) {
    if (settings[name] === undefined) faults.push(refuseProp("CAUSEWAY_PRP_016", name, `${name} is missing`));
  }
  const { tablePrefix, architecture } = settings;
  if (faults.length === 0) faults.push(...checkQueues(settings as Partial<Settings> & Pick<Settings, "queue">));
  if (typeof tablePrefix === "string" && !/^[A-Za-z0-9_.-]{1,230}$/.test(tablePrefix)) {
    faults.push(refuse("CAUSEWAY_TBL_002", "tablePrefix", `no name of a DynamoDB table begins with "${tablePrefix}"`));
  }
  if (typeof architecture === "string" && architecture !== "arm64" && architecture !== "x86_64") {
    faults.push(refuseProp("CAUSEWAY_PRP_016", "architecture", 'this must be "arm64" or "x86_64"'));
  }
  return faults;
}

/** Each queue is made or exists, has a variable of its own, and shares its name with no other that is made. */
function checkQueues(settings: Pick<Settings, "queue" | "queues" | "variables">): SynthFault[] {
  const taken = new Set([QUEUE_VARIABLE, ...Object.keys(variables(settings as Settings))]);
  const further = Object.entries(settings.queues ?? {});
  const faults = further
    .filter(([variable]) => taken.has(variable))
    .map(([variable]) =>
      refuseProp("CAUSEWAY_PRP_004", `queues.${variable}`, `\${${variable}} is filled by another setting`),
    );
  const made = new Map<string, string>();
  const all: [string, QueueSetting][] = [
    ["queue", settings.queue],
    ...further.map(([variable, queue]): [string, QueueSetting] => [`queues.${variable}`, queue]),
  ];
  for (const [path, queue] of all) {
    const { name, maxReceiveCount, arn, keyArn } = queue as Partial<Record<string, string | number>>;
    if ((name === undefined) === (arn === undefined)) {
      faults.push(refuseProp("CAUSEWAY_PRP_016", path, "this must be `{ name }` or `{ arn }`, one of them"));
      continue;
    }
    faults.push(...checkQueue(path, { name, maxReceiveCount, arn, keyArn }));
    for (const own of name === undefined ? [] : [`${name}`, `${name}-dlq`]) {
      const other = made.get(own);
      if (other !== undefined)
        faults.push(refuseProp("CAUSEWAY_PRP_016", path, `a queue "${own}" is made by \`${other}\` already`));
      made.set(own, path);
    }
  }
  return faults;
}

/** The ARN of a queue, with its region. */
const QUEUE_ARN = /^arn:aws[a-z-]*:sqs:([a-z]{2}(?:-[a-z]+)+-\d+):\d{12}:[A-Za-z0-9_-]{1,80}(?:\.fifo)?$/;

/** What belongs to queues that are made, and what to those that exist. */
function checkQueue(
  path: string,
  queue: Partial<Record<"name" | "maxReceiveCount" | "arn" | "keyArn", string | number>>,
): SynthFault[] {
  const { name, maxReceiveCount: count, arn, keyArn } = queue;
  const faults: SynthFault[] = [];
  const region = QUEUE_ARN.exec(`${arn}`)?.[1];
  if (arn !== undefined && region === undefined) {
    faults.push(
      refuseProp(
        "CAUSEWAY_PRP_016",
        `${path}.arn`,
        "this must be the ARN of a queue, such as arn:aws:sqs:us-east-1:111122223333:orders",
      ),
    );
  }
  if (
    count !== undefined &&
    (name === undefined || !Number.isInteger(count) || Number(count) < 1 || Number(count) > 1000)
  ) {
    faults.push(
      refuseProp(
        "CAUSEWAY_PRP_016",
        `${path}.maxReceiveCount`,
        "this must be a whole number from 1 to 1000, for a queue that is made here",
      ),
    );
  }
  if (
    keyArn !== undefined &&
    (name !== undefined || !/^arn:[a-z-]+:kms:[a-z0-9-]+:\d{12}:key\/.+$/.test(`${keyArn}`))
  ) {
    faults.push(
      refuseProp("CAUSEWAY_PRP_016", `${path}.keyArn`, "this must be the ARN of a key of KMS, for a queue that exists"),
    );
  } else if (keyArn !== undefined && region !== undefined && `${keyArn}`.split(":")[3] !== region) {
    faults.push(
      refuseProp("CAUSEWAY_PRP_016", `${path}.keyArn`, `this must be a key of the queue's region, ${region}`),
    );
  }
  return faults;
}

function shape(value: Record<string, unknown>, fields: Fields, path: string): SynthFault[] {
  return Object.entries(value).flatMap(([name, inner]) => {
    const kind = Object.hasOwn(fields, name) ? fields[name] : undefined;
    const at = `${path}${name}`;
    if (kind === undefined) {
      const near = nearest(name, Object.keys(fields));
      const hint = near === undefined ? "" : `; did you mean "${near}"?`;
      return [refuseProp("CAUSEWAY_PRP_015", at, `there is no setting "${at}"${hint}`)];
    }
    if (inner === undefined) return [];
    if (typeof kind === "object" && isMap(inner)) {
      const free = kind instanceof ByName ? kind.fields : undefined;
      const known = free && Object.fromEntries(Object.keys(inner).map((key) => [key, free]));
      return shape(inner, known ?? (kind as Fields), `${at}.`);
    }
    if (typeof kind === "string" && isKind(inner, kind)) return [];
    // The value is not shown: it may be a secret in the wrong place.
    const wanted =
      typeof kind === "string" ? kind : kind instanceof ByName ? `${shown(kind.fields)} by name` : shown(kind);
    return [refuseProp("CAUSEWAY_PRP_016", at, `this must be ${wanted}`)];
  });
}

function shown(fields: Fields): string {
  return `{ ${Object.keys(fields).join(", ")} }`;
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isKind(value: unknown, kind: Plain): boolean {
  const texts = (list: unknown) => Array.isArray(list) && list.every((text) => typeof text === "string");
  switch (kind) {
    case "a text":
      return typeof value === "string";
    case "a number":
      return typeof value === "number";
    case "true or false":
      return typeof value === "boolean";
    case "a list of texts":
      return texts(value);
    case "texts by name":
      return isMap(value) && Object.values(value).every((text) => typeof text === "string");
    case "lists of texts by name":
      return isMap(value) && Object.values(value).every(texts);
  }
}

/** The name that differs least, where it is a slip of the pen. */
function nearest(name: string, known: readonly string[]): string | undefined {
  const measured = known.map((candidate) => ({
    candidate,
    steps: distance(name.toLowerCase(), candidate.toLowerCase()),
  }));
  const [best] = measured.sort((a, b) => a.steps - b.steps);
  return best !== undefined && best.steps <= Math.max(2, name.length / 4) ? best.candidate : undefined;
}

/** Levenshtein's. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let line = 1; line <= a.length; line += 1) {
    const next = [line];
    for (let column = 1; column <= b.length; column += 1) {
      const changed = (row[column - 1] ?? 0) + (a[line - 1] === b[column - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
