import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { MEASURED, measurements, month, PRICES, RATES, SHAPE, table } from "../scripts/cost.ts";
import { MINIMAL, resources, templates } from "./support.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PAGE = fileURLToPath(new URL("../../docs/deploy.md", import.meta.url));

/** What stands between the marks of this name; with UPDATE_DOCS=1 it is written anew. */
function section(name: string, expected: string): string {
  const marks = new RegExp(`(<!-- ${name} -->\\n)([\\s\\S]*?)(\\n?<!-- /${name} -->)`);
  if (process.env.UPDATE_DOCS === "1") {
    writeFileSync(
      PAGE,
      readFileSync(PAGE, "utf8").replace(marks, (_, open) => `${open}${expected}\n<!-- /${name} -->`),
    );
  }
  return marks.exec(readFileSync(PAGE, "utf8"))?.[2] ?? "";
}

describe("what a month costs", () => {
  test("stands in docs/deploy.md as it is printed (UPDATE_DOCS=1 writes it)", () => {
    const printed = spawnSync(process.execPath, ["--import", "tsx", "scripts/cost.ts"], {
      cwd: ROOT,
      encoding: "utf8",
    }).stdout.trim();
    assert.equal(printed, table(RATES.map(month)));
    assert.equal(section("cost", printed), printed);
    assert.equal(section("measured", measurements()), measurements());
    assert.ok(readFileSync(PAGE, "utf8").includes(PRICES.asOf), "the page says of when the prices are");
  });

  test("is printed as JSON with every price and assumption", () => {
    const { stdout } = spawnSync(process.execPath, ["--import", "tsx", "scripts/cost.ts", "--json"], {
      cwd: ROOT,
      encoding: "utf8",
    });
    assert.deepEqual(
      JSON.parse(stdout),
      JSON.parse(JSON.stringify({ prices: PRICES, measured: MEASURED, shape: SHAPE, months: RATES.map(month) })),
    );
  });

  test("adds up, grows with the rate, and follows the formula", () => {
    const months = RATES.map(month);
    for (const { lines, nat, endpoints, totalWithNat, totalWithoutNat } of months) {
      const sum = lines.reduce((total, { dollars }) => total + dollars, 0);
      assert.ok(Math.abs(sum + nat - totalWithNat) < 1e-9 && Math.abs(sum + endpoints - totalWithoutNat) < 1e-9);
    }
    const totals = months.map(({ totalWithNat }) => totalWithNat);
    assert.deepEqual(
      [...totals].sort((a, b) => a - b),
      totals,
    );
    const writes = months.at(-1)?.lines.find(({ item }) => item === "DynamoDB: writes")?.dollars ?? 0;
    const expected = ((730 * 3600 * (1000 * 0.24 + SHAPE.leaseWritesPerSecond)) / 1e6) * 0.625;
    assert.ok(Math.abs(writes - expected) < 1e-6, `${writes} ${expected}`);
    assert.throws(() => month(7), /nothing was measured/);
  });

  test("counts what the alarms of the smallest deployment look at", () => {
    const alarms = Object.values(resources(templates(MINIMAL).bridge, "AWS::CloudWatch::Alarm"));
    const looked = alarms.flatMap(
      ({ Properties }) => Properties.Metrics?.filter((metric: object) => "MetricStat" in metric) ?? [Properties],
    );
    assert.equal(looked.length, SHAPE.alarmMetrics);
    const services = Object.values(resources(templates(MINIMAL).bridge, "AWS::ECS::Service"));
    assert.equal(
      services.reduce((tasks, { Properties }) => tasks + Properties.DesiredCount, 0),
      SHAPE.tasks,
    );
    for (const { Properties } of Object.values(resources(templates(MINIMAL).bridge, "AWS::ECS::TaskDefinition"))) {
      assert.deepEqual([Properties.Cpu, Properties.Memory], [String(SHAPE.vcpu * 1024), String(SHAPE.gib * 1024)]);
    }
    assert.equal(Object.keys(resources(templates(MINIMAL).bridge, "AWS::EC2::NatGateway")).length, SHAPE.natGateways);
    assert.equal(
      Object.keys(resources(templates(MINIMAL).bridge, "AWS::SecretsManager::Secret")).length,
      SHAPE.secrets,
    );
    const without = templates({ ...MINIMAL, vpc: { natGateways: 0 } }).bridge;
    const endpoints = Object.values(resources(without, "AWS::EC2::VPCEndpoint")).filter(
      ({ Properties }) => Properties.VpcEndpointType === "Interface",
    );
    assert.equal(endpoints.length, SHAPE.interfaceEndpoints);
  });
});
