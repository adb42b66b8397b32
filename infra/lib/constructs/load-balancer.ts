import { Duration } from "aws-cdk-lib";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import type * as ecs from "aws-cdk-lib/aws-ecs";
import * as elbv2 from "aws-cdk-lib/aws-elasticloadbalancingv2";
import { Construct } from "constructs";
import { SynthRefused } from "../checks/fault.ts";
import { PORTS } from "../ports.ts";
import { refuseProp } from "./faults.ts";
import type { BridgeService } from "./service.ts";

/** What a load balancer's listener passes on to the bridge. */
export interface LoadBalancerAttachmentProps {
  /** The listener. It should speak HTTPS. */
  readonly listener: elbv2.IApplicationListener;

  /** The load balancer's security group, from which the tasks take connections. */
  readonly securityGroup: ec2.ISecurityGroup;

  /**
   * The number of the first rule; the admin rule has it, the transport rule the next one.
   */
  readonly priority: number;

  /**
   * Which requests go to the HTTP receivers and the command gateway, on every task.
   *
   * @default - none do
   */
  readonly transport?: readonly elbv2.ListenerCondition[];

  /**
   * Which requests go to the admin interface. They reach the control task only, and need the admin key.
   *
   * @default - none do
   */
  readonly admin?: readonly elbv2.ListenerCondition[];
}

/** The rules, target groups and openings through which a load balancer reaches the tasks. */
export class LoadBalancerAttachment extends Construct {
  /** The control task's admin interface, where asked for. */
  public readonly adminTargetGroup?: elbv2.ApplicationTargetGroup;
  /** Every task's transport, where asked for. */
  public readonly transportTargetGroup?: elbv2.ApplicationTargetGroup;

  public constructor(
    scope: Construct,
    id: string,
    props: LoadBalancerAttachmentProps & { readonly service: BridgeService },
  ) {
    super(scope, id);
    const { priority, service } = props;
    if (!Number.isSafeInteger(priority) || priority < 1 || priority > 49_999) {
      throw new SynthRefused([
        refuseProp("CAUSEWAY_PRP_010", "loadBalancer.priority", `${priority} is not the number of a rule`),
      ]);
    }
    const empty = [props.admin, props.transport].some((conditions) => conditions?.length === 0);
    if (empty || (props.admin === undefined && props.transport === undefined)) {
      throw new SynthRefused([
        refuseProp("CAUSEWAY_PRP_011", "loadBalancer", "no condition says which requests are the bridge's"),
      ]);
    }
    const peer = ec2.Peer.securityGroupId(props.securityGroup.securityGroupId);
    const controlTargets: ecs.CfnService.LoadBalancerProperty[] = [];
    if (props.admin !== undefined) {
      this.adminTargetGroup = this.targets("admin", service);
      controlTargets.push(target("admin", this.adminTargetGroup));
      this.rule("admin", props, priority, props.admin, this.adminTargetGroup);
      service.controlSecurityGroup.addIngressRule(
        peer,
        ec2.Port.tcp(PORTS.admin),
        "Admin interface from the load balancer",
      );
      service.controlSecurityGroup.addIngressRule(
        peer,
        ec2.Port.tcp(PORTS.monitor),
        "Health checks of the load balancer",
      );
    }
    if (props.transport !== undefined) {
      this.transportTargetGroup = this.targets("transport", service);
      controlTargets.push(target("transport", this.transportTargetGroup));
      this.attach(service.workerService, [target("transport", this.transportTargetGroup)]);
      this.rule("transport", props, priority + 1, props.transport, this.transportTargetGroup);
      service.securityGroup.addIngressRule(peer, ec2.Port.tcp(PORTS.transport), "Transport from the load balancer");
      service.securityGroup.addIngressRule(peer, ec2.Port.tcp(PORTS.monitor), "Health checks of the load balancer");
    }
    this.attach(service.controlService, controlTargets);
  }

  /** On the resource itself: CDK's own way would open each port in every group of the service, and so the admin port of every worker. */
  private attach(service: ecs.FargateService, targets: ecs.CfnService.LoadBalancerProperty[]): void {
    const resource = service.node.defaultChild as ecs.CfnService;
    resource.loadBalancers = targets;
    resource.healthCheckGracePeriodSeconds = 60;
    // ECS refuses a target group that no listener uses.
    service.node.addDependency(this);
  }

  private targets(name: "admin" | "transport", service: BridgeService): elbv2.ApplicationTargetGroup {
    return new elbv2.ApplicationTargetGroup(this, `${name}-targets`, {
      vpc: service.cluster.vpc,
      port: PORTS[name],
      protocol: elbv2.ApplicationProtocol.HTTP,
      targetType: elbv2.TargetType.IP,
      deregistrationDelay: Duration.seconds(30),
      healthCheck: { path: "/api/v1/monitor/live", port: String(PORTS.monitor), interval: Duration.seconds(15) },
    });
  }

  private rule(
    name: string,
    props: LoadBalancerAttachmentProps,
    priority: number,
    conditions: readonly elbv2.ListenerCondition[],
    targets: elbv2.ApplicationTargetGroup,
  ): void {
    new elbv2.ApplicationListenerRule(this, `${name}-rule`, {
      listener: props.listener,
      priority,
      conditions: [...conditions],
      targetGroups: [targets],
    });
  }
}

function target(name: "admin" | "transport", group: elbv2.ApplicationTargetGroup): ecs.CfnService.LoadBalancerProperty {
  return { containerName: "causeway", containerPort: PORTS[name], targetGroupArn: group.targetGroupArn };
}
