import { ArnFormat, Stack } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import type { Construct } from "constructs";
import { type BridgeConfig, mqtt } from "../config/model.ts";

/** The places in AWS from which the program itself reads secrets that the configuration names. */
export function secretPlaces(config: BridgeConfig): string[] {
  const http = config.http ?? {};
  const written = [
    ...(config.sessions ?? []).map((session) => mqtt(session).credentials_uri),
    ...(config.receivers ?? []).map((receiver) => receiver.options?.token),
    config.commands?.token,
    http.hint_token,
    http.monitor_api_key,
    http.admin_api_key,
    ...(http.admin_keys ?? []).map(({ key }) => key),
  ];
  const named = written.filter((text): text is string => typeof text === "string");
  return [...new Set(named.filter((text) => parameterOf(text) !== undefined || secretOf(text) !== undefined))].sort();
}

/** One statement for each service that is read from: exactly what is named. */
export function secretStatements(scope: Construct, places: readonly string[]): iam.PolicyStatement[] {
  const stack = Stack.of(scope);
  const parameters = places.map(parameterOf).filter((name) => name !== undefined);
  const secrets = places.map(secretOf).filter((id) => id !== undefined);
  const parameter = (name: string) =>
    name.startsWith("arn:")
      ? name
      : stack.formatArn({ service: "ssm", resource: "parameter", resourceName: name.replace(/^\//, "") });
  // The ARN of a name ends in six characters that only AWS knows.
  const secret = (id: string) =>
    id.startsWith("arn:")
      ? id
      : `${stack.formatArn({ service: "secretsmanager", resource: "secret", resourceName: id, arnFormat: ArnFormat.COLON_RESOURCE_NAME })}-??????`;
  const statement = (sid: string, action: string, resources: string[]) =>
    resources.length === 0
      ? []
      : [new iam.PolicyStatement({ sid, actions: [action], resources: [...new Set(resources)] })];
  return [
    ...statement("NamedParameters", "ssm:GetParameter", parameters.map(parameter)),
    ...statement("NamedSecrets", "secretsmanager:GetSecretValue", secrets.map(secret)),
  ];
}

function parameterOf(place: string): string | undefined {
  return /^(?:ssm|pms):\/\/(?!\/$)([A-Za-z0-9/_.\-:]+)$/.exec(place)?.[1];
}

function secretOf(place: string): string | undefined {
  return /^secretsmanager:\/\/([A-Za-z0-9/_+=.@\-:]+)(?:#[A-Za-z0-9_.-]+)?$/.exec(place)?.[1];
}
