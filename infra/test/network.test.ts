import assert from "node:assert/strict";
import { test } from "node:test";
import { Template } from "aws-cdk-lib/assertions";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import { BridgeNetwork, type BridgeNetworkProps } from "../lib/constructs/network.ts";
import { bareStack, counts, MINIMAL, one, resources, templates } from "./support.ts";

function network(props: BridgeNetworkProps | ((stack: ReturnType<typeof bareStack>) => BridgeNetworkProps)) {
  const stack = bareStack();
  const made = new BridgeNetwork(stack, "Network", typeof props === "function" ? props(stack) : props);
  return { made, template: Template.fromStack(stack) };
}

test("a new network has private subnets and a NAT gateway in each of two zones", () => {
  const { made, template } = network({});
  const found = counts(template);
  assert.equal(made.created, true);
  assert.deepEqual(made.vpcSubnets, { subnetType: ec2.SubnetType.PRIVATE_WITH_EGRESS });
  assert.equal(found["AWS::EC2::NatGateway"], 2);
  const zones = Object.entries(resources(template, "AWS::EC2::Subnet"))
    .filter(([id]) => id.includes("tasks"))
    .map(([, { Properties }]) => JSON.stringify(Properties.AvailabilityZone));
  assert.equal(new Set(zones).size, 2);
});

test("the tables' traffic goes through free endpoints of the tasks' subnets", () => {
  const { template } = network({});
  const endpoints = Object.values(resources(template, "AWS::EC2::VPCEndpoint"));
  assert.equal(endpoints.length, 2);
  const services = endpoints.map(({ Properties }) => JSON.stringify(Properties.ServiceName));
  assert.ok(services.some((name) => name.includes(".dynamodb")) && services.some((name) => name.includes(".s3")));
  for (const { Properties } of endpoints) {
    assert.equal(Properties.VpcEndpointType, "Gateway");
    assert.equal(Properties.RouteTableIds.length, 2);
  }
});

test("without NAT gateways there is nothing public", () => {
  const { made, template } = network({ natGateways: 0, flowLogs: false });
  assert.deepEqual(counts(template), {
    "AWS::EC2::RouteTable": 2,
    "AWS::EC2::Subnet": 2,
    "AWS::EC2::SubnetRouteTableAssociation": 2,
    "AWS::EC2::VPC": 1,
    "AWS::EC2::VPCEndpoint": 2,
  });
  assert.deepEqual(made.vpcSubnets, { subnetType: ec2.SubnetType.PRIVATE_ISOLATED });
});

test("settings without NAT gateways reach AWS through endpoints, unless told otherwise", () => {
  const reach = (vpc: object) =>
    Object.keys(resources(templates({ ...MINIMAL, vpc }).bridge, "AWS::EC2::VPCEndpoint")).length;
  assert.equal(reach({ natGateways: 0 }), 8);
  assert.equal(reach({ natGateways: 0, interfaceEndpoints: false }), 2);
});

test("refused traffic is logged for a month", () => {
  const { template } = network({});
  assert.equal(one(template, "AWS::EC2::FlowLog").Properties.TrafficType, "REJECT");
  assert.equal(one(template, "AWS::Logs::LogGroup").Properties.RetentionInDays, 30);
  assert.deepEqual(resources(network({ flowLogs: false }).template, "AWS::EC2::FlowLog"), {});
});

test("in a VPC that exists nothing is made unless asked for", () => {
  const existing = (stack: ReturnType<typeof bareStack>) =>
    ec2.Vpc.fromVpcAttributes(stack, "Existing", {
      vpcId: "vpc-1",
      availabilityZones: ["a", "b"],
      privateSubnetIds: ["subnet-a", "subnet-b"],
      privateSubnetRouteTableIds: ["rtb-a", "rtb-b"],
    });
  assert.deepEqual(counts(network((stack) => ({ vpc: existing(stack) })).template), {});
  const asked = network((stack) => ({ vpc: existing(stack), gatewayEndpoints: true }));
  assert.deepEqual(counts(asked.template), { "AWS::EC2::VPCEndpoint": 2 });
  assert.deepEqual(Object.keys(asked.made.gatewayEndpoints), ["dynamodb", "s3"]);
});

test("nothing in the template is looked up or bound to an account", () => {
  const text = JSON.stringify(templates(MINIMAL).bridge.toJSON());
  assert.ok(!/dummy1a|\d{12}\.dkr/.test(text));
});
