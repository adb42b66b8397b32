import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Platform } from "aws-cdk-lib/aws-ecr-assets";
import * as ecs from "aws-cdk-lib/aws-ecs";
import type { ImageSource } from "../checks/image.ts";
import { SOURCE_TREE } from "./source-tree.ts";

/** The processor that tasks and functions run on. */
export type Architecture = "arm64" | "x86_64";

/** The image of a task, and whether it stands for one that is not built yet. */
export interface ResolvedImage {
  /** What the task definition refers to. */
  readonly image: ecs.ContainerImage;
  /** True: there is no image yet, and the stack must not be deployed. */
  readonly placeholder: boolean;
}

/** What a task definition names while `scripts/build-image` has not run. Nobody can pull it. */
export const PLACEHOLDER_IMAGE = `causeway-placeholder@sha256:${"0".repeat(64)}`;

/**
 * The container image. One that is built from this tree only copies a program that `scripts/build-image` compiled for the architecture, so that
 * building it emulates nothing; the script also notes the digest of the base image.
 *
 * @param context the folder that `scripts/build-image` fills
 */
export function resolveImage(
  source: ImageSource,
  architecture: Architecture,
  context = join(SOURCE_TREE, "dist", "image"),
): ResolvedImage {
  switch (source.kind) {
    case "registry":
      return { image: ecs.ContainerImage.fromRegistry(source.uri), placeholder: false };
    case "ecr":
      return { image: ecs.ContainerImage.fromEcrRepository(source.repository, source.digest), placeholder: false };
    case "tree": {
      const folder = join(context, architecture);
      const base = join(folder, "base-image");
      if (![base, join(folder, "Dockerfile"), join(folder, "causeway")].every(existsSync)) {
        return { image: ecs.ContainerImage.fromRegistry(PLACEHOLDER_IMAGE), placeholder: true };
      }
      const image = ecs.ContainerImage.fromAsset(folder, {
        assetName: "causeway",
        platform: architecture === "arm64" ? Platform.LINUX_ARM64 : Platform.LINUX_AMD64,
        buildArgs: { BASE_IMAGE: readFileSync(base, "utf8").trim(), PROGRAM: "causeway" },
      });
      return { image, placeholder: false };
    }
  }
}
