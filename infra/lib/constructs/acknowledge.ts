import { Validations } from "aws-cdk-lib";
import type { IConstruct } from "constructs";

/** Says why a finding of a rule is as it should be, for everything below a construct. The reason is written into the template. */
export function acknowledge(scope: IConstruct, id: string, reason: string): void {
  Validations.of(scope).acknowledge({ id, reason });
}
