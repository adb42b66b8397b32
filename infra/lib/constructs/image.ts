import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Stack } from "aws-cdk-lib";
import * as ecr from "aws-cdk-lib/aws-ecr";
import { Platform } from "aws-cdk-lib/aws-ecr-assets";
import * as ecs from "aws-cdk-lib/aws-ecs";
import type { Construct } from "constructs";
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
 * @param scope what an image of ECR is referred to from, once for each scope
 * @param context the folder that `scripts/build-image` fills
 */
export function resolveImage(
  scope: Construct,
  source: ImageSource,
  architecture: Architecture,
  context = join(SOURCE_TREE, "dist", "image"),
): ResolvedImage {
  switch (source.kind) {
    case "registry":
      return { image: inEcr(scope, source.uri) ?? ecs.ContainerImage.fromRegistry(source.uri), placeholder: false };
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

/** An image of ECR by its address, which ECS needs a permission for; `undefined` for one of any other registry. */
function inEcr(scope: Construct, uri: string): ecs.ContainerImage | undefined {
  const [, account, region, name, digest] =
    /^(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\/([^:@]+)@(.+)$/.exec(uri) ?? [];
  if (account === undefined || region === undefined || name === undefined || digest === undefined) return undefined;
  const repositoryArn = Stack.of(scope).formatArn({
    service: "ecr",
    account,
    region,
    resource: "repository",
    resourceName: name,
  });
  const repository = ecr.Repository.fromRepositoryAttributes(scope, "Repository", {
    repositoryArn,
    repositoryName: name,
  });
  return ecs.ContainerImage.fromEcrRepository(repository, digest);
}
