import type { Construct } from "constructs";
import { GeneratedSecret, namesVariable } from "./generated-secret.ts";

/** The variable of the configuration that stands for the token: `http: {hint_token: ${HINT_TOKEN}}`. */
export const HINT_TOKEN = "HINT_TOKEN";

/** Whether a document, as the containers read it, leaves the token to its reader. */
export function namesHintToken(document: string): boolean {
  return namesVariable(document, HINT_TOKEN);
}

/** Props of {@link HintToken}. */
export interface HintTokenProps {
  /** The bridge's name. */
  readonly bridgeId: string;
}

/** By what the tasks of a bridge recognise each other's hints that a lease is free. */
export class HintToken extends GeneratedSecret {
  public constructor(scope: Construct, id: string, props: HintTokenProps) {
    super(scope, id, {
      description: `What the tasks of the bridge ${props.bridgeId} recognise each other's hints by`,
      notRotated:
        "It must be the same in all tasks, which read it when they start: rotated, those of before and after would refuse each other's hints.",
    });
  }
}
