import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));

test("cdk synth works from a clone: no credentials, no network, no Docker, no artifacts", () => {
  const home = mkdtempSync(join(tmpdir(), "causeway-synth-"));
  try {
    // Nothing but node is on the path. A proxy that answers nobody would show every attempt to reach the network.
    const bin = join(home, "bin");
    spawnSync("mkdir", [bin]);
    symlinkSync(process.execPath, join(bin, "node"));
    symlinkSync("/bin/sh", join(bin, "sh"));
    const nowhere = "http://127.0.0.1:1";
    const run = spawnSync(
      process.execPath,
      [
        join(PACKAGE, "node_modules", "aws-cdk", "bin", "cdk"),
        "synth",
        "--quiet",
        "--output",
        join(home, "out"),
        "--no-notices",
      ],
      {
        cwd: PACKAGE,
        encoding: "utf8",
        env: {
          PATH: bin,
          HOME: home,
          HTTPS_PROXY: nowhere,
          HTTP_PROXY: nowhere,
          AWS_EC2_METADATA_DISABLED: "true",
          CDK_DISABLE_VERSION_CHECK: "1",
        },
      },
    );
    assert.equal(run.status, 0, run.stderr);
    const written = readdirSync(join(home, "out")).filter((file) => file.endsWith(".template.json"));
    assert.equal(written.length, 2);
    const manifest = JSON.parse(readFileSync(join(home, "out", "manifest.json"), "utf8"));
    assert.equal(manifest.missing, undefined, "nothing has to be looked up");
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
