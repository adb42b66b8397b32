import { readFileSync } from "node:fs";
import type { PolicyValidationPluginReport } from "aws-cdk-lib";
import { type IPolicyValidationContext, type IPolicyValidationPlugin, type PolicyViolation, Stack } from "aws-cdk-lib";
import { CfnTable } from "aws-cdk-lib/aws-dynamodb";
import type { IConstruct } from "constructs";
import { RULES, type RuleCode } from "./codes.ts";
import { MAX_STOP_TIMEOUT_SECONDS } from "./inputs.ts";

/** The metadata key of a resource that would run an artifact which is not built yet; its value is the script that builds it. */
const PLACEHOLDER = "causeway-placeholder";
/** Rows of these must never vanish by themselves: they carry fencing versions, waiting messages, and what a broker keeps. */
const WITHOUT_TTL = ["leases", "outbox", "managed_subscriptions"];

/** A resource of a synthesized template. */
interface Resource {
  readonly Type: string;
  readonly Properties?: Record<string, unknown>;
  readonly Metadata?: Record<string, unknown>;
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
}

/** One finding in one template. */
interface Finding {
  readonly code: RuleCode;
  readonly logicalId: string;
  readonly message: string;
  readonly location: string;
}

/**
 * Looks at the templates as they will be deployed, after every escape hatch and aspect. What the constructs guarantee by their props is proved here
 * once more by what comes out.
 *
 * A placeholder for an artifact that is not built is told as a warning: it may be synthesized, and its parameter stops it from being deployed.
 */
export class CausewayRules implements IPolicyValidationPlugin {
  public readonly name = "causeway";
  public readonly version = "1.0.0";
  public readonly ruleIds: string[] = Object.keys(RULES);

  public validate(context: IPolicyValidationContext): PolicyValidationPluginReport {
    const roles = tableRoles(context.appConstruct);
    const violations: PolicyViolation[] = [];
    let success = true;
    for (const { templatePath } of context.stackTemplates) {
      const template = JSON.parse(readFileSync(templatePath, "utf8")) as { Resources?: Record<string, Resource> };
      for (const finding of examine(template.Resources ?? {}, roles)) {
        const warning = finding.code === "CAUSEWAY_AST_001";
        success &&= warning;
        violations.push({
          ruleName: finding.code,
          description: finding.message,
          fix: RULES[finding.code],
          severity: warning ? "warning" : "error",
          violatingResources: [{ resourceLogicalId: finding.logicalId, templatePath, locations: [finding.location] }],
        });
      }
    }
    return { success, violations };
  }
}

/** What the tables of BridgeTables are for, by logical id. */
function tableRoles(app: IConstruct): ReadonlyMap<string, string> {
  const tables = app.node.findAll().filter((node) => CfnTable.isCfnTable(node));
  return new Map(
    tables.map((table) => [String(Stack.of(table).resolve(table.logicalId)), table.node.scope?.node.id ?? ""]),
  );
}

/** Everything that is wrong with the resources of one template. */
export function examine(
  resources: Readonly<Record<string, Resource>>,
  tableRoles: ReadonlyMap<string, string>,
): Finding[] {
  const found = Object.entries(resources).flatMap(([logicalId, resource]) => {
    const findings: Finding[] = [];
    const report: Report = (code, location, message) => findings.push({ code, logicalId, message, location });
    const script = resource.Metadata?.[PLACEHOLDER];
    if (script !== undefined) {
      const what = `${logicalId} is a placeholder, which can be synthesized and not deployed: run ${script}`;
      report("CAUSEWAY_AST_001", `Metadata/${PLACEHOLDER}`, what);
    }
    if (resource.Type === "AWS::ECS::Service") service(resource, kindOf(resource, resources), report);
    if (resource.Type === "AWS::ECS::TaskDefinition") taskDefinition(resource, report);
    if (resource.Type === "AWS::DynamoDB::Table") table(resource, tableRoles.get(logicalId), report);
    return findings;
  });
  return [...found, ...oneControl(resources)];
}

/** Where workers run, there is one control service beside them, and only one. */
function oneControl(resources: Readonly<Record<string, Resource>>): Finding[] {
  const services = Object.entries(resources).filter(([, { Type }]) => Type === "AWS::ECS::Service");
  const of = (kind: Kind) => services.filter(([, resource]) => kindOf(resource, resources) === kind).map(([id]) => id);
  const [controls, workers] = [of("control"), of("worker")];
  const finding = (logicalId: string, message: string): Finding => ({
    code: "CAUSEWAY_ECS_004",
    logicalId,
    message,
    location: "Properties/TaskDefinition",
  });
  if (controls.length === 0) {
    return workers.map((id) =>
      finding(id, "there are workers and no control service: none of its tasks says `--role control`"),
    );
  }
  return controls.slice(1).map((id) => finding(id, `a second control service beside ${controls[0]}`));
}

type Report = (code: RuleCode, location: string, message: string) => unknown;
type Kind = "control" | "worker" | undefined;

/** What a service runs, by the command of its container. */
function kindOf(service: Resource, resources: Readonly<Record<string, Resource>>): Kind {
  const reference = service.Properties?.TaskDefinition;
  const id = isRecord(reference) ? String(reference.Ref) : "";
  const command = causeway(resources[id])?.Command;
  if (!Array.isArray(command)) return undefined;
  const role: unknown = command[command.indexOf("--role") + 1];
  return role === "control" || role === "worker" ? role : undefined;
}

function causeway(definition: Resource | undefined): Record<string, unknown> | undefined {
  const containers = definition?.Properties?.ContainerDefinitions;
  return Array.isArray(containers)
    ? (containers.filter(isRecord).find((container) => container.Name === "causeway") ?? undefined)
    : undefined;
}

function service(resource: Resource, kind: Kind, report: Report): void {
  const properties = resource.Properties ?? {};
  const deployment = isRecord(properties.DeploymentConfiguration) ? properties.DeploymentConfiguration : {};
  const count = properties.DesiredCount;
  const [least, most] = [deployment.MinimumHealthyPercent, deployment.MaximumPercent];
  if (least === 100 && most === 100) {
    report(
      "CAUSEWAY_ECS_009",
      "Properties/DeploymentConfiguration",
      "minimum 100 % and maximum 100 %: no task may stop and none may start, so it can never be deployed again",
    );
  }
  if (kind === "control") {
    if (count !== 1)
      report(
        "CAUSEWAY_ECS_004",
        "Properties/DesiredCount",
        `exactly one control task may run, and DesiredCount is ${shown(count)}`,
      );
    if (least !== 0 || most !== 100)
      report(
        "CAUSEWAY_ECS_005",
        "Properties/DeploymentConfiguration",
        `a deployment of ${shown(least)} to ${shown(most)} % could run two control tasks at once`,
      );
    if (properties.AvailabilityZoneRebalancing !== "DISABLED")
      report(
        "CAUSEWAY_ECS_006",
        "Properties/AvailabilityZoneRebalancing",
        "rebalancing starts a second control task before it stops the first, and it is on unless switched off",
      );
  }
  if (kind === "worker") {
    if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 2) {
      report(
        "CAUSEWAY_ECS_007",
        "Properties/DesiredCount",
        `DesiredCount is ${shown(count)}: without a second worker nobody stands by`,
      );
    }
    if (least !== 100 || most !== 200)
      report(
        "CAUSEWAY_ECS_008",
        "Properties/DeploymentConfiguration",
        `a deployment of ${shown(least)} to ${shown(most)} % would leave fewer workers than wanted, or could not start new ones`,
      );
  }
}

function taskDefinition(resource: Resource, report: Report): void {
  const container = causeway(resource);
  if (container === undefined) return;
  const timeout = container.StopTimeout;
  const fits =
    typeof timeout === "number" && Number.isSafeInteger(timeout) && timeout >= 1 && timeout <= MAX_STOP_TIMEOUT_SECONDS;
  if (!fits)
    report(
      "CAUSEWAY_ECS_010",
      "Properties/ContainerDefinitions",
      `StopTimeout is ${shown(timeout)}: Fargate allows 1 to ${MAX_STOP_TIMEOUT_SECONDS} s, and 30 s where nothing is written`,
    );
}

function table(resource: Resource, role: string | undefined, report: Report): void {
  const properties = resource.Properties ?? {};
  if (role !== undefined && WITHOUT_TTL.includes(role) && properties.TimeToLiveSpecification !== undefined) {
    report(
      "CAUSEWAY_TBL_004",
      "Properties/TimeToLiveSpecification",
      `rows of the ${role} table would vanish by themselves, and messages or fencing versions with them`,
    );
  }
  const recovery = properties.PointInTimeRecoverySpecification;
  if (!isRecord(recovery) || recovery.PointInTimeRecoveryEnabled !== true) {
    report("CAUSEWAY_TBL_005", "Properties/PointInTimeRecoverySpecification", "point-in-time recovery is off");
  }
  if (properties.DeletionProtectionEnabled !== true)
    report("CAUSEWAY_TBL_006", "Properties/DeletionProtectionEnabled", "deletion protection is off");
  if (resource.DeletionPolicy !== "Retain" || resource.UpdateReplacePolicy !== "Retain") {
    report("CAUSEWAY_TBL_007", "DeletionPolicy", "the table would be deleted with the stack, or replaced");
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value of a template, for a message. */
function shown(value: unknown): string {
  if (value === undefined) return "left out";
  return typeof value === "object" ? "not a literal" : JSON.stringify(value);
}
