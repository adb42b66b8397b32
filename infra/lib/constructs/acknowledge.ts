import { Stack, Token, Validations } from "aws-cdk-lib";
import type * as logs from "aws-cdk-lib/aws-logs";
import type { IConstruct } from "constructs";

/** Says why a finding of a rule is as it should be, for everything below a construct. The reason is written into the template. */
export function acknowledge(scope: IConstruct, id: string, reason: string): void {
  Validations.of(scope).acknowledge({ id, reason });
}

/** The streams of a log group that exists have an ARN that ends in a star; those of a new one are referred to. */
export function acknowledgeOwnStreams(scope: IConstruct, logGroup: logs.ILogGroup): void {
  acknowledgePattern(
    scope,
    logGroup.logGroupArn,
    "The streams of one log group, which ECS and Lambda name themselves.",
  );
}

/** Says why the resource of a statement is a pattern, where it is one. */
export function acknowledgePattern(scope: IConstruct, pattern: string, reason: string): void {
  const arn = flatten(Stack.of(scope).resolve(pattern));
  if (arn !== undefined) acknowledge(scope, `AwsSolutions-IAM5[Resource::${arn}]`, reason);
}

/** An ARN as cdk-nag writes it: references in angle brackets. `undefined` where it has no star. */
function flatten(arn: unknown): string | undefined {
  const parts = (arn as { "Fn::Join"?: [string, unknown[]] })["Fn::Join"]?.[1] ?? [arn];
  const text = parts
    .map((part) => (typeof part === "string" ? part : `<${(part as { Ref?: string }).Ref ?? ""}>`))
    .join("");
  return text.endsWith("*") && !Token.isUnresolved(text) ? text : undefined;
}
