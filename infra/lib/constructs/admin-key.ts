import type { Construct } from "constructs";
import { GeneratedSecret, namesVariable } from "./generated-secret.ts";

/** The variable of the configuration that stands for the key: `http: {admin_api_key: ${ADMIN_API_KEY}}`. */
export const ADMIN_API_KEY = "ADMIN_API_KEY";

/** Whether a document, as the containers read it, leaves the key to its reader. */
export function namesAdminKey(document: string): boolean {
  return namesVariable(document, ADMIN_API_KEY);
}

/** Props of {@link AdminKey}. */
export interface AdminKeyProps {
  /** The bridge's name. */
  readonly bridgeId: string;
}

/** The key of the admin interface. Whoever may read this secret may act on the bridge, once a load balancer lets them in. */
export class AdminKey extends GeneratedSecret {
  public constructor(scope: Construct, id: string, props: AdminKeyProps) {
    super(scope, id, {
      description: `The key of the admin interface of the bridge ${props.bridgeId}`,
      notRotated: "Tasks read it when they start: rotated, it would open nothing until they are replaced.",
    });
  }
}
