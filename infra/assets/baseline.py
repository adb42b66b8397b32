"""Makes the row of a session in the table of managed subscriptions, if there is none."""

import json
import urllib.request

import botocore.exceptions
import botocore.session


def seed(client, properties):
    """Writes the row with an update that only creates. A row that stands is newer and stays."""
    values = {":true": {"BOOL": True}}
    expression = "SET baseline = :true"
    filters = sorted(set(properties.get("Filters") or []))
    if filters:  # DynamoDB keeps no empty sets
        values[":filters"] = {"SS": filters}
        expression += ", filters = :filters"
    try:
        client.update_item(
            TableName=properties["Table"],
            Key={"storage_identity": {"S": properties["StorageIdentity"]}},
            UpdateExpression=expression,
            ConditionExpression="attribute_not_exists(storage_identity)",
            ExpressionAttributeValues=values,
        )
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise


def handler(event, context):
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    answer["PhysicalResourceId"] = event["ResourceProperties"]["StorageIdentity"]
    answer.update(Status="SUCCESS", NoEcho=True)
    try:
        if event["RequestType"] != "Delete":
            seed(botocore.session.get_session().create_client("dynamodb"), event["ResourceProperties"])
    except Exception as error:
        answer.update(Status="FAILED", Reason=f"{type(error).__name__}: {error}"[:1000])
    if event["RequestType"] == "Delete":
        answer["PhysicalResourceId"] = event["PhysicalResourceId"]
    body = json.dumps(answer).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT", headers={"Content-Type": ""})
    urllib.request.urlopen(request, timeout=30).read()
