/** ajv is CommonJS: one place that knows how its class is found. */
import ajv2020 from "ajv/dist/2020.js";

export type { ErrorObject } from "ajv";
export const Ajv2020 = ajv2020.Ajv2020;
