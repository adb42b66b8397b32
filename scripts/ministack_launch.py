"""Starts MiniStack with what the local stack needs on top of it.

The additions reach into private names of one release, so that release is asserted. Each one stands beside what it repairs:

* CloudFormation refuses resource types that our stacks use, and alarms on an expression. They become records without a life of their own.
* Rows whose time to live is over go within a minute, where AWS takes up to days: before the housekeeping under test could remove them.
* CloudFormation drops time-to-live and point-in-time recovery of tables, and the VPC's `CidrBlock` attribute.
* Task definitions of CloudFormation keep their secrets under names that no client reads.
* With AUTH=true, batch calls of SQS are authorised under names that AWS does not have.
* With AUTH=true, reading several parameters is authorised for all resources, not for the parameters.
* With AUTH=true, policies that demand TLS shut out a client on plain HTTP, which is all there is on loopback.
* SQS moves no messages of a dead-letter queue back (StartMessageMoveTask, ListMessageMoveTasks).
* With AUTH=true, nobody writes down what roles did.
* Receiving from a queue and deleting from it walk over all messages several times, so that a long queue crawls.
"""

import importlib.metadata
import json
import os
import secrets
import sys
import time

PINNED = "1.5.33"


def main() -> None:
    """Checks the version, applies the additions and serves until killed."""
    found = importlib.metadata.version("ministack")
    if found != PINNED:
        sys.exit(f"ministack {found} is installed, but this launcher is written for {PINNED}: run scripts/setup")
    keep_rows_whose_time_is_over()
    add_resource_types()
    record_alarms_on_expressions()
    add_vpc_cidr()
    add_table_settings()
    name_secrets_of_containers()
    authorise_batches_like_aws()
    authorise_parameters_by_name()
    treat_loopback_as_tls()
    keep_long_queues_fast()
    move_messages_of_dead_letter_queues()
    write_down_what_roles_do()

    from ministack.app import main as serve

    serve()


def keep_rows_whose_time_is_over() -> None:
    """The thread that would remove them begins when its module is read."""
    import threading

    start = threading.Thread.start

    def start_others(thread):
        if thread.name != "dynamodb-ttl-reaper":
            start(thread)

    threading.Thread.start = start_others
    try:
        import ministack.services.dynamodb  # noqa: F401
    finally:
        threading.Thread.start = start


def _handlers():
    from ministack.services.cloudformation import provisioners

    return provisioners._RESOURCE_HANDLERS


def _record(prefix: str, attributes):
    """A resource type that only remembers that it was created."""

    def create(logical_id, properties, stack_name):
        identity = prefix + secrets.token_hex(9)[:17]
        return identity, attributes(identity)

    def update(identity, old, new, stack_name):
        return identity, attributes(identity)

    def delete(identity, properties):
        return None

    return {"create": create, "update": update, "delete": delete}


def add_resource_types() -> None:
    """Elastic IPs, NAT gateways, rules of security groups, flow logs, composite alarms and autoscaling, as records."""
    handlers = _handlers()
    handlers.setdefault("AWS::EC2::EIP", _record("eipalloc-", lambda i: {"AllocationId": i, "PublicIp": "203.0.113.10"}))
    handlers.setdefault("AWS::EC2::NatGateway", _record("nat-", lambda i: {"NatGatewayId": i}))
    handlers.setdefault("AWS::EC2::FlowLog", _record("fl-", lambda i: {"Id": i}))
    for direction in ("Ingress", "Egress"):
        handlers.setdefault(f"AWS::EC2::SecurityGroup{direction}", _record("sgr-", lambda i: {"Id": i}))
    alarm = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"
    handlers.setdefault("AWS::CloudWatch::CompositeAlarm", _record("composite-", lambda i: {"Arn": alarm + i}))
    handlers.setdefault("AWS::ApplicationAutoScaling::ScalableTarget", _record("service/scalable-", lambda i: {"ScalableTargetId": i}))
    policy = "arn:aws:autoscaling:us-east-1:000000000000:scalingPolicy:"
    handlers.setdefault("AWS::ApplicationAutoScaling::ScalingPolicy", _record(policy, lambda i: {"Arn": i}))


def record_alarms_on_expressions() -> None:
    """An alarm on an expression is never evaluated here; one on a metric is."""
    alarm = _handlers()["AWS::CloudWatch::Alarm"]
    prefix = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:"
    on_expression = _record("expression-", lambda i: {"Arn": prefix + i})
    plain = dict(alarm)

    def create(logical_id, properties, stack_name):
        chosen = on_expression if properties.get("Metrics") else plain
        return chosen["create"](logical_id, properties, stack_name)

    def delete(identity, properties):
        return None if identity.startswith("expression-") else plain["delete"](identity, properties)

    alarm["create"], alarm["delete"] = create, delete
    if "update" in plain:

        def update(identity, old, new, *rest, **named):
            if identity.startswith("expression-"):
                return on_expression["update"](identity, old, new, None)
            return plain["update"](identity, old, new, *rest, **named)

        alarm["update"] = update


def add_vpc_cidr() -> None:
    """`Fn::GetAtt Vpc.CidrBlock`, which interface endpoints ask for."""
    vpc = _handlers()["AWS::EC2::VPC"]
    create, update = vpc["create"], vpc["update"]

    def with_cidr(answer, properties):
        identity, attributes = answer
        attributes = dict(attributes or {})
        attributes.setdefault("CidrBlock", properties.get("CidrBlock"))
        return identity, attributes

    vpc["create"] = lambda logical, props, stack: with_cidr(create(logical, props, stack), props)
    vpc["update"] = lambda identity, old, new, stack, logical_id=None: with_cidr(
        update(identity, old, new, stack, logical_id=logical_id), new
    )


def add_table_settings() -> None:
    """Time to live and point-in-time recovery of tables that CloudFormation creates."""
    from ministack.services import dynamodb

    table = _handlers()["AWS::DynamoDB::Table"]
    create, update = table["create"], table.get("update")

    def with_settings(answer, properties):
        name = answer[0]
        ttl = properties.get("TimeToLiveSpecification")
        if ttl:
            enabled = str(ttl.get("Enabled", True)).lower() == "true"
            dynamodb._update_ttl({"TableName": name, "TimeToLiveSpecification": {**ttl, "Enabled": enabled}})
        recovery = properties.get("PointInTimeRecoverySpecification")
        if recovery:
            dynamodb._update_continuous_backups({"TableName": name, "PointInTimeRecoverySpecification": recovery})
        return answer

    table["create"] = lambda logical, props, stack: with_settings(create(logical, props, stack), props)
    if update:
        table["update"] = lambda identity, old, new, stack, **rest: with_settings(update(identity, old, new, stack, **rest), new)


def name_secrets_of_containers() -> None:
    """`Name` and `ValueFrom` of a template are `name` and `valueFrom` of the interface."""
    from ministack.services.cloudformation import provisioners

    original = provisioners._normalize_container_defs

    def normalize(definitions):
        containers = original(definitions)
        for container in containers:
            secrets_of = container.get("secrets") or []
            container["secrets"] = [{key[0].lower() + key[1:]: value for key, value in one.items()} for one in secrets_of]
        return containers

    provisioners._normalize_container_defs = normalize


def authorise_batches_like_aws() -> None:
    """`sqs:SendMessage` covers SendMessageBatch, and so on."""
    from ministack.core import iam_actions

    original = iam_actions._action_from_target
    batches = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")

    def action(headers):
        name = original(headers)
        if name in batches and headers.get("x-amz-target", "").startswith("AmazonSQS"):
            return name.removesuffix("Batch")
        return name

    iam_actions._action_from_target = action


def authorise_parameters_by_name() -> None:
    """`ssm:GetParameters` is allowed for the parameters that it names. Our callers name one."""
    from ministack.core import iam_actions

    original = iam_actions.extract_resource_arn

    def resource(service, method, path, headers, body, query_params, region, account_id):
        if service == "ssm" and headers.get("x-amz-target", "").endswith(".GetParameters"):
            names = json.loads(body or b"{}").get("Names", [])
            if len(names) == 1 and not names[0].startswith("arn:"):
                return f"arn:aws:ssm:{region}:{account_id}:parameter/{names[0].lstrip('/')}"
        return original(service, method, path, headers, body, query_params, region, account_id)

    iam_actions.extract_resource_arn = resource


def treat_loopback_as_tls() -> None:
    """`aws:SecureTransport` is true: the server listens on loopback only."""
    from ministack.core import iam_evaluator

    original = iam_evaluator._resolve_condition_key

    def resolve(key, context):
        return "true" if key.lower() == "aws:securetransport" else original(key, context)

    iam_evaluator._resolve_condition_key = resolve


def keep_long_queues_fast() -> None:
    """One walk at most for each call, and none further than needed. Results are the same."""
    from ministack.services import sqs

    collect, expire = sqs._collect_msgs, sqs._expire_retained

    def collect_first(queue, count, visibility):
        if queue["is_fifo"]:
            return collect(queue, count, visibility)
        now = time.time()
        found = []
        for message in queue["messages"]:
            sqs._ensure_msg_fields(message)
            if message["visible_at"] <= now:
                found.append(message)
                if len(found) == count:
                    break
        return collect({**queue, "messages": found}, count, visibility)

    def expire_if_due(queue):
        """Messages stand in the order in which they were sent: if the first is young, all are."""
        messages = queue["messages"]
        retention = float(queue["attributes"].get("MessageRetentionPeriod", "345600"))
        if messages and messages[0].get("enqueued_at", messages[0].get("sent_at", 0)) <= time.time() - retention:
            expire(queue)

    def delete_batch(data, queue_url):
        queue = sqs._get_q(data.get("QueueUrl", queue_url), "sqs:DeleteMessage")
        entries = data.get("Entries", [])
        sqs._validate_batch_entries(entries, "DeleteMessageBatchRequestEntry")
        wanted = {entry.get("ReceiptHandle", "") for entry in entries}
        kept, deleted, position = [], set(), 0
        messages = queue["messages"]
        while position < len(messages) and len(deleted) < len(wanted):
            handle = messages[position].get("receipt_handle")
            if handle is not None and handle in wanted:
                deleted.add(handle)
            else:
                kept.append(messages[position])
            position += 1
        queue["messages"] = kept + messages[position:]
        answer = {"Successful": [], "Failed": []}
        for entry in entries:
            if entry.get("ReceiptHandle", "") in deleted:
                answer["Successful"].append({"Id": entry.get("Id", "")})
            else:
                message = "The input receipt handle is invalid."
                fault = {"Code": "ReceiptHandleIsInvalid", "Message": message, "SenderFault": True}
                answer["Failed"].append({"Id": entry.get("Id", ""), **fault})
        return answer

    sqs._collect_msgs = collect_first
    sqs._expire_retained = expire_if_due
    for table in (value for value in vars(sqs).values() if isinstance(value, dict)):
        if table.get("DeleteMessageBatch") is sqs._act_delete_message_batch:
            table["DeleteMessageBatch"] = delete_batch


def move_messages_of_dead_letter_queues() -> None:
    """The task is done before its answer is given. What the caller must be allowed besides is checked as SQS checks it, in the caller's name."""
    from ministack.core import iam_evaluator
    from ministack.services import sqs

    tasks = {}

    def queue_of(arn):
        for queue in sqs._queues.values():
            if queue["attributes"].get("QueueArn") == arn:
                return queue
        raise sqs._Err("ResourceNotFoundException", "The resource that you specified for the SourceArn parameter doesn't exist.")

    def sources_of(arn):
        for queue in sqs._queues.values():
            policy = json.loads(queue["attributes"].get("RedrivePolicy") or "{}")
            if policy.get("deadLetterTargetArn") == arn:
                yield queue

    def start(data, url):
        arn = data.get("SourceArn", "")
        dead, back = queue_of(arn), next(sources_of(arn), None)
        if back is None:
            raise sqs._Err("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
        iam_evaluator.allowed_besides(("ReceiveMessage", "DeleteMessage"), arn)
        iam_evaluator.allowed_besides(("SendMessage",), back["attributes"]["QueueArn"])
        moved, dead["messages"] = dead["messages"], []
        back["messages"].extend({**message, "visible_at": 0, "receive_count": 0} for message in moved)
        handle = secrets.token_hex(16)
        count = len(moved)
        tasks[arn] = {"TaskHandle": handle, "Status": "COMPLETED", "SourceArn": arn, "ApproximateNumberOfMessagesMoved": count}
        return {"TaskHandle": handle}

    def listed(data, url):
        queue_of(data.get("SourceArn", ""))
        return {"Results": [tasks[data["SourceArn"]]] if data["SourceArn"] in tasks else []}

    for table in (value for value in vars(sqs).values() if isinstance(value, dict)):
        if table.get("DeleteMessageBatch") is not None and table.get("SendMessage") is sqs._act_send_message:
            table.update(StartMessageMoveTask=start, ListMessageMoveTasks=listed)


def write_down_what_roles_do() -> None:
    """Each thing that a role was allowed, once, as a line of `roles.jsonl` in the folder of files: role, action, resource.

    A transaction is authorised by what it is made of, and so it is written down.
    """
    import contextvars
    from pathlib import Path

    from ministack.core import iam_actions, iam_evaluator

    enforce, target = iam_evaluator.enforce, iam_actions.extract_resource_arn
    caller = contextvars.ContextVar("caller", default=None)
    seen = set()
    file = Path(os.environ["HOME"]) / "roles.jsonl"

    def write(access_key, action, arn):
        from ministack.core.responses import get_account_id

        account = get_account_id()
        principal = iam_evaluator.resolve_principal(access_key or "", account, iam_evaluator.authenticate(access_key or "", account))
        _, _, role = getattr(principal, "arn", "").partition(":assumed-role/")
        line = (role.partition("/")[0], action, arn)
        if role and line not in seen:
            seen.add(line)
            with file.open("a") as out:
                out.write(json.dumps(dict(zip(("role", "action", "resource"), line))) + "\n")

    def enforce_and_write(access_key_id, iam_action, service, region, resource_arn="*", service_context=None):
        caller.set((access_key_id, service, region))
        refusal = enforce(access_key_id, iam_action, service, region, resource_arn=resource_arn, service_context=service_context)
        if refusal is None:
            write(access_key_id, iam_action, resource_arn)
        return refusal

    def allowed_besides(operations, arn):
        from ministack.services import sqs

        if caller.get() is None:
            return
        access_key, service, region = caller.get()
        for operation in operations:
            if enforce_and_write(access_key, f"sqs:{operation}", service, region, resource_arn=arn):
                raise sqs._Err("AccessDeniedException", f"not authorized to perform: sqs:{operation} on resource: {arn}")

    def resource(service, method, path, headers, body, query_params, region, account_id):
        if service == "sqs" and headers.get("x-amz-target", "").endswith(("StartMessageMoveTask", "ListMessageMoveTasks")):
            return json.loads(body or b"{}").get("SourceArn", "*")
        return target(service, method, path, headers, body, query_params, region, account_id)

    iam_actions.extract_resource_arn = resource
    iam_evaluator.enforce = enforce_and_write
    iam_evaluator.allowed_besides = allowed_besides


if __name__ == "__main__":
    main()
