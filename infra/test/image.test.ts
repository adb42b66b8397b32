import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { SOURCE_TREE } from "../lib/constructs/source-tree.ts";

const dockerfile = readFileSync(join(SOURCE_TREE, "Dockerfile"), "utf8");
const steps = dockerfile.split("\n").filter((line) => /^[A-Z]+ /.test(line));

test("building the image runs nothing, so that no processor is emulated", () => {
  assert.ok(steps.length >= 6);
  assert.deepEqual(
    steps.filter((line) => /^(RUN|ADD|SHELL|ONBUILD) /.test(line)),
    [],
  );
  assert.equal(steps.filter((line) => line.startsWith("FROM ")).length, 1);
});

test("the base is named from outside by its digest, never by a default", () => {
  assert.ok(steps.includes("ARG BASE_IMAGE") && steps.includes("FROM $" + "{BASE_IMAGE}"));
});

test("the program is not root and cannot change itself", () => {
  assert.ok(steps.includes("USER 65532:65532"));
  assert.ok(steps.some((line) => line.startsWith("COPY --chmod=0555 ")));
});

test("nothing but the built program gets into the context", () => {
  const lines = readFileSync(join(SOURCE_TREE, ".dockerignore"), "utf8")
    .split("\n")
    .filter((line) => line && !line.startsWith("#"));
  assert.deepEqual(lines, ["*", "!Dockerfile", "!dist", "dist/*", "!dist/image"]);
});

/** Runs scripts/build-image in a tree of its own, without Docker. */
function build(...args: string[]) {
  const tree = mkdtempSync(join(tmpdir(), "causeway-image-"));
  try {
    for (const file of ["Dockerfile", "Cargo.toml"])
      writeFileSync(join(tree, file), readFileSync(join(SOURCE_TREE, file)));
    spawnSync("mkdir", [join(tree, "scripts")]);
    for (const file of ["build-image", "cross"]) {
      writeFileSync(join(tree, "scripts", file), readFileSync(join(SOURCE_TREE, "scripts", file)), { mode: 0o755 });
    }
    const run = spawnSync(join(tree, "scripts", "build-image"), args, {
      encoding: "utf8",
      env: { PATH: "/usr/bin:/bin", CDK_DOCKER: "no-such-docker" },
    });
    const context = join(tree, "dist", "image", process.arch === "arm64" ? "arm64" : "x86_64");
    const files = ["causeway", "Dockerfile", "base-image"].filter((file) => existsSync(join(context, file)));
    return { status: run.status, told: run.stderr, files };
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}

const here = process.arch === "arm64" ? "arm64" : "x86_64";
const other = here === "arm64" ? "x86_64" : "arm64";
const base = `registry.example.com/base@sha256:${"c".repeat(64)}`;

test("scripts/build-image says what to do without Docker", () => {
  const { status, told } = build();
  assert.equal(status, 1);
  assert.match(told, /no-such-docker is missing\. Install Docker .*--no-docker/);
});

test("scripts/build-image fills the context for cdk deploy", () => {
  const { status, files } = build("--no-docker", "--arch", here, "--program", process.execPath, "--base", base);
  assert.equal(status, 0);
  assert.deepEqual(files, ["causeway", "Dockerfile", "base-image"]);
});

test("scripts/build-image refuses a program for another processor, a base without a digest, and what it does not know", () => {
  assert.match(
    build("--no-docker", "--arch", other, "--program", process.execPath, "--base", base).told,
    /is a program for .* and the image is for/,
  );
  assert.match(build("--no-docker", "--base", "debian:12").told, /by digest/);
  assert.match(build("--no-docker", "--arch", here, "--program", process.execPath).told, /pass --base/);
  assert.match(build("--arch", "mips").told, /arm64 or x86_64/);
  assert.match(build("--frobnicate").told, /unknown argument/);
});
