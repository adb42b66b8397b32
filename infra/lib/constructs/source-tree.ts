import { fileURLToPath } from "node:url";

/** The root of the source tree that this package stands in. */
export const SOURCE_TREE = fileURLToPath(new URL("../../../", import.meta.url));
