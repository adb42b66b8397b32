import * as ec2 from "aws-cdk-lib/aws-ec2";
import * as iam from "aws-cdk-lib/aws-iam";
import * as logs from "aws-cdk-lib/aws-logs";
import { Construct } from "constructs";
import { acknowledge } from "./acknowledge.ts";

/** Props of {@link BridgeNetwork}. */
export interface BridgeNetworkProps {
  /**
   * A VPC that exists already.
   *
   * @default - a new VPC of two availability zones
   */
  readonly vpc?: ec2.IVpc;

  /**
   * The subnets of the tasks. They must span two availability zones, provably so at synth.
   *
   * @default - private subnets with egress; isolated ones where `natGateways` is 0
   */
  readonly vpcSubnets?: ec2.SubnetSelection;

  /**
   * NAT gateways of a new VPC, through which the tasks reach the broker and SQS. One in each zone keeps the bridge alive when a zone fails; one
   * alone halves the cost and does not. With 0 there are no public subnets at all: the broker must then be reachable from isolated subnets (peering,
   * a transit gateway, an endpoint service), and `interfaceEndpoints` is how the tasks reach AWS.
   *
   * @default 2
   */
  readonly natGateways?: number;

  /**
   * The address range of a new VPC.
   *
   * @default "10.0.0.0/16"
   */
  readonly cidr?: string;

  /**
   * Free gateway endpoints for DynamoDB and S3, so that the tables' traffic passes no NAT gateway.
   *
   * @default - true for a new VPC, false for an existing one, which may have them already
   */
  readonly gatewayEndpoints?: boolean;

  /**
   * Interface endpoints for SQS, ECR, CloudWatch Logs, SSM and Secrets Manager. They cost money by hour and zone.
   *
   * @default false
   */
  readonly interfaceEndpoints?: boolean;

  /**
   * Flow logs of refused traffic of a new VPC, kept for a month.
   *
   * @default true
   */
  readonly flowLogs?: boolean;
}

/** A VPC for the bridge, or what is needed inside one that exists. */
export class BridgeNetwork extends Construct {
  /** The VPC. */
  public readonly vpc: ec2.IVpc;
  /** The subnets of the tasks. */
  public readonly vpcSubnets: ec2.SubnetSelection;
  /** Whether the VPC was made here. */
  public readonly created: boolean;
  /** The gateway endpoints that were made here, by service. */
  public readonly gatewayEndpoints: Readonly<Record<string, ec2.GatewayVpcEndpoint>>;
  /** The interface endpoints that were made here, by service. */
  public readonly interfaceEndpoints: Readonly<Record<string, ec2.InterfaceVpcEndpoint>>;
  /** The group of the refused traffic's log, where it was made here. */
  public readonly flowLogGroup?: logs.LogGroup;

  public constructor(scope: Construct, id: string, props: BridgeNetworkProps = {}) {
    super(scope, id);
    const { natGateways = 2, cidr = "10.0.0.0/16" } = props;
    this.created = props.vpc === undefined;
    const type =
      this.created && natGateways === 0 ? ec2.SubnetType.PRIVATE_ISOLATED : ec2.SubnetType.PRIVATE_WITH_EGRESS;
    this.vpcSubnets = props.vpcSubnets ?? { subnetType: type };
    this.vpc = props.vpc ?? this.createVpc(natGateways, cidr);
    if (this.created && (props.flowLogs ?? true)) this.flowLogGroup = this.logRefused();
    this.gatewayEndpoints = (props.gatewayEndpoints ?? this.created) ? this.addGatewayEndpoints() : {};
    this.interfaceEndpoints = props.interfaceEndpoints
      ? this.addInterfaceEndpoints(this.created ? cidr : this.vpc.vpcCidrBlock)
      : {};
    if (this.created && props.flowLogs === false) {
      acknowledge(this.vpc, "AwsSolutions-VPC7", "Flow logs were switched off in the settings.");
    }
  }

  private createVpc(natGateways: number, cidr: string): ec2.Vpc {
    const tasks = { name: "tasks", cidrMask: 22 };
    const isolated = natGateways === 0;
    return new ec2.Vpc(this, "Vpc", {
      ipAddresses: ec2.IpAddresses.cidr(cidr),
      maxAzs: 2,
      natGateways,
      // Nothing uses the default group; closing it would take a function with rights over every group of the account.
      restrictDefaultSecurityGroup: false,
      subnetConfiguration: isolated
        ? [{ ...tasks, subnetType: ec2.SubnetType.PRIVATE_ISOLATED }]
        : [
            { name: "public", cidrMask: 26, subnetType: ec2.SubnetType.PUBLIC, mapPublicIpOnLaunch: false },
            { ...tasks, subnetType: ec2.SubnetType.PRIVATE_WITH_EGRESS },
          ],
    });
  }

  private logRefused(): logs.LogGroup {
    const group = new logs.LogGroup(this, "FlowLogGroup", { retention: logs.RetentionDays.ONE_MONTH });
    const role = new iam.Role(this, "FlowLogRole", {
      assumedBy: new iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"),
    });
    this.vpc.addFlowLog("RefusedTraffic", {
      destination: ec2.FlowLogDestination.toCloudWatchLogs(group, role),
      trafficType: ec2.FlowLogTrafficType.REJECT,
    });
    return group;
  }

  private addGatewayEndpoints(): Record<string, ec2.GatewayVpcEndpoint> {
    const subnets = [this.vpcSubnets];
    const services = { dynamodb: ec2.GatewayVpcEndpointAwsService.DYNAMODB, s3: ec2.GatewayVpcEndpointAwsService.S3 };
    const made = Object.entries(services).map(([name, service]) => [
      name,
      new ec2.GatewayVpcEndpoint(this, `${name}-gateway`, { vpc: this.vpc, service, subnets }),
    ]);
    return Object.fromEntries(made);
  }

  private addInterfaceEndpoints(range: string): Record<string, ec2.InterfaceVpcEndpoint> {
    const group = new ec2.SecurityGroup(this, "EndpointSecurityGroup", {
      vpc: this.vpc,
      description: "Interface endpoints for the tasks of the bridge",
      allowAllOutbound: false,
    });
    group.addIngressRule(ec2.Peer.ipv4(range), ec2.Port.tcp(443), "From this network");
    const services = {
      sqs: ec2.InterfaceVpcEndpointAwsService.SQS,
      ecrApi: ec2.InterfaceVpcEndpointAwsService.ECR,
      ecrDocker: ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,
      logs: ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
      ssm: ec2.InterfaceVpcEndpointAwsService.SSM,
      secretsManager: ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
    };
    const made = Object.entries(services).map(([name, service]) => [
      name,
      new ec2.InterfaceVpcEndpoint(this, `${name}-endpoint`, {
        vpc: this.vpc,
        service,
        subnets: this.vpcSubnets,
        open: false,
        securityGroups: [group],
      }),
    ]);
    return Object.fromEntries(made);
  }
}
