import { Token } from "aws-cdk-lib";
import type * as ecr from "aws-cdk-lib/aws-ecr";
import { type RuleCode, refuse } from "./codes.ts";
import type { SynthFault } from "./fault.ts";

/** Where the container image comes from. */
export type ImageSource =
  /** Any registry; the address ends in `@sha256:…`. */
  | { readonly kind: "registry"; readonly uri: string }
  /** A repository of ECR, and the digest of the image in it. */
  | { readonly kind: "ecr"; readonly repository: ecr.IRepository; readonly digest: string }
  /** Built from this source tree, and so pinned by the hash of its content. */
  | { readonly kind: "tree" };

const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** An image that cannot change under a running service: pinned by digest, or built from this tree. */
export function checkImage(image: ImageSource): SynthFault[] {
  switch (image.kind) {
    case "tree":
      return [];
    case "ecr":
      return digest("image.digest", image.digest, image.digest);
    case "registry": {
      if (Token.isUnresolved(image.uri)) {
        return [
          refuse("CAUSEWAY_IMG_001", "image.uri", "the address is a token: nobody can see at synth which image it is"),
        ];
      }
      const at = image.uri.indexOf("@");
      if (at < 1) {
        return [
          refuse(
            "CAUSEWAY_IMG_001",
            "image.uri",
            `"${image.uri}" names an image by a tag, or by nothing: two tasks could run different programs`,
          ),
        ];
      }
      return digest("image.uri", image.uri.slice(at + 1), image.uri);
    }
  }
}

function digest(path: string, value: unknown, shown: string): SynthFault[] {
  const code: RuleCode = "CAUSEWAY_IMG_002";
  if (Token.isUnresolved(value)) return [refuse("CAUSEWAY_IMG_001", path, "the digest is a token, not a literal")];
  if (typeof value === "string" && DIGEST.test(value)) return [];
  return [refuse(code, path, `"${shown}" does not end in a digest: sha256: and 64 hexadecimal digits`)];
}
