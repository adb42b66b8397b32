//! Tasks of a cluster: what goes over the wire and what comes of it, with a server that answers by script, and once with an emulator of ECS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![cfg(feature = "ecs")]

mod support;

use causeway_aws::EcsTasks;
use causeway_core::outcome::{FaultCode, Outcome};
use causeway_core::units::UnixMillis;
use causeway_ports::Tasks as _;
use serde_json::{Value, json};
use std::time::Duration;
use support::emulator::ministack;
use support::scripted::{Reply, Scripted};

const MINE: &str = "arn:aws:ecs:us-east-1:000000000000:task/plant/aaa";

fn tasks(endpoint: &str) -> EcsTasks {
    EcsTasks::new(support::clients(endpoint).ecs_at(None).unwrap(), "plant")
}

fn bodies(server: &Scripted) -> Vec<Value> {
    server.requests().iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

fn targets(server: &Scripted) -> Vec<String> {
    let named = |target: Option<String>| target.unwrap().strip_prefix("amazonec2containerservicev20141113.").unwrap().to_owned();
    server.headers("x-amz-target").into_iter().map(named).collect()
}

/// As <https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_DescribeTasks.html> has it: JSON 1.1, times in seconds with a fraction.
#[tokio::test]
async fn what_a_task_does_is_kept_apart_from_what_it_is_to_do() {
    let task = json!({
        "taskArn": MINE, "clusterArn": "arn:aws:ecs:us-east-1:000000000000:cluster/plant", "lastStatus": "RUNNING", "desiredStatus": "STOPPED",
        "launchType": "FARGATE", "healthStatus": "HEALTHY", "group": "service:workers", "startedAt": 1_700_000_000.25, "stoppingAt": 1_700_000_009.5,
        "stopCode": "UserInitiated", "stoppedReason": "why not", "containers": [], "somethingNewer": {"a": 1}
    });
    let gone = json!({ "arn": "arn:aws:ecs:us-east-1:000000000000:task/plant/bbb", "reason": "MISSING" });
    let server = Scripted::start([Reply::ok(json!({ "tasks": [task], "failures": [gone] }).to_string())]).await;
    let described = tasks(&server.endpoint).describe(&[MINE.to_owned(), "bbb".to_owned()]).await.unwrap();
    let [told] = &described.tasks[..] else { panic!("{described:?}") };
    assert_eq!((told.last_status.as_str(), told.desired_status.as_str(), told.stopped_at), ("RUNNING", "STOPPED", None));
    assert_eq!((told.launch_type.as_deref(), told.health.as_deref()), (Some("FARGATE"), Some("HEALTHY")));
    assert_eq!((told.stop_code.as_deref(), told.stopped_reason.as_deref()), (Some("UserInitiated"), Some("why not")));
    assert_eq!((told.started_at, told.group.as_deref()), (Some(UnixMillis(1_700_000_000_250)), Some("service:workers")));
    assert!(!told.is_up(), "it is to stop");
    assert_eq!(described.missing, [(gone["arn"].as_str().unwrap().to_owned(), "MISSING".to_owned())]);
    assert_eq!(bodies(&server), [json!({ "cluster": "plant", "tasks": [MINE, "bbb"] })]);
    assert_eq!(targets(&server), ["describetasks"]);
    assert_eq!(server.headers("content-type"), [Some("application/x-amz-json-1.1".to_owned())]);
}

#[tokio::test]
async fn many_tasks_are_asked_for_a_hundred_at_a_time_and_lists_are_read_to_their_end() {
    let server = Scripted::start([Reply::ok(r#"{"tasks":[],"failures":[]}"#)]).await;
    let many: Vec<String> = (0..250).map(|number| number.to_string()).collect();
    tasks(&server.endpoint).describe(&many).await.unwrap();
    let asked: Vec<usize> = bodies(&server).iter().map(|body| body["tasks"].as_array().unwrap().len()).collect();
    assert_eq!(asked, [100, 100, 50]);

    let server = Scripted::start([Reply::ok(r#"{"taskArns":["a"],"nextToken":"t1"}"#), Reply::ok(r#"{"taskArns":["b"]}"#)]).await;
    assert_eq!(tasks(&server.endpoint).list(Some("workers")).await.unwrap(), ["a", "b"]);
    let first = json!({ "cluster": "plant", "serviceName": "workers" });
    assert_eq!(bodies(&server), [first, json!({ "cluster": "plant", "serviceName": "workers", "nextToken": "t1" })]);
    assert_eq!(targets(&server), ["listtasks", "listtasks"]);
}

/// As <https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_DescribeServices.html> has it.
#[tokio::test]
async fn the_deployment_that_a_service_goes_on_with_is_its_primary_one() {
    let deployment = |id: &str, status: &str| json!({ "id": id, "status": status, "createdAt": 1_700_000_000.25, "runningCount": 2 });
    let service = |deployments: Value| json!({ "services": [{ "serviceName": "workers", "deployments": deployments }], "failures": [] });
    let rollback = service(json!([deployment("ecs-svc/2", "ACTIVE"), deployment("ecs-svc/1", "PRIMARY")]));
    let missing = json!({ "services": [], "failures": [{ "arn": "arn:aws:ecs:us-east-1:1:service/workers", "reason": "MISSING" }] });
    for (answer, expected) in [
        (rollback, Some("ecs-svc/1")),
        (service(json!([deployment("ecs-svc/1", "INACTIVE")])), None),
        // Where something else deploys (CODE_DEPLOY, EXTERNAL), a service has task sets instead.
        (json!({ "services": [{ "serviceName": "workers", "taskSets": [] }] }), None),
        (missing, None),
        (json!({}), None),
    ] {
        let server = Scripted::start([Reply::ok(answer.to_string())]).await;
        assert_eq!(tasks(&server.endpoint).primary_deployment("workers").await.unwrap().as_deref(), expected, "{answer}");
        assert_eq!(bodies(&server), [json!({ "cluster": "plant", "services": ["workers"] })]);
        assert_eq!(targets(&server), ["describeservices"]);
    }
    for (reply, code) in [
        (Reply::failure(400, "ThrottlingException"), FaultCode::Throttled),
        (Reply::failure(400, "AccessDeniedException"), FaultCode::NotAuthorized),
        (Reply::failure(400, "ClusterNotFoundException"), FaultCode::NotFound),
    ] {
        let server = Scripted::start([reply]).await;
        assert_eq!(tasks(&server.endpoint).primary_deployment("workers").await.unwrap_err().code, code);
        assert_eq!(server.requests().len(), 1, "nothing is tried twice");
    }
}

#[tokio::test]
async fn a_refusal_to_stop_stopped_nothing_and_a_lost_answer_may_have() {
    for (reply, expected) in [
        (Reply::failure(400, "ClusterNotFoundException"), Some(FaultCode::NotFound)),
        (Reply::failure(400, "InvalidParameterException"), Some(FaultCode::InvalidConfig)),
        (Reply::failure(400, "AccessDeniedException"), Some(FaultCode::NotAuthorized)),
        (Reply::failure(400, "ThrottlingException"), Some(FaultCode::Throttled)),
        (Reply::failure(500, "ServerException"), None),
        (Reply::ResetAfterRequest, None),
    ] {
        let server = Scripted::start([reply.clone()]).await;
        let outcome = tasks(&server.endpoint).stop(MINE, "a test").await;
        match (outcome, expected) {
            (Outcome::NotDone(fault), Some(code)) => assert_eq!(fault.code, code, "{reply:?}"),
            (Outcome::Unknown(_), None) => {}
            (outcome, _) => panic!("{reply:?}: {outcome:?}"),
        }
        assert_eq!(bodies(&server), [json!({ "cluster": "plant", "task": MINE, "reason": "a test" })], "nothing is tried twice");
        assert_eq!(targets(&server), ["stoptask"]);
    }
}

#[tokio::test]
async fn a_list_without_end_is_a_fault() {
    let server = Scripted::start([Reply::ok(r#"{"taskArns":[],"nextToken":"again"}"#)]).await;
    assert_eq!(tasks(&server.endpoint).list(None).await.unwrap_err().code, FaultCode::ProtocolError);
}

/// Records of tasks, without processes: another implementation of the same API.
#[tokio::test]
async fn a_task_of_an_emulator_is_listed_described_and_stopped() {
    let emulator = ministack();
    let clients = support::clients_with_timeout(&emulator.endpoint, Duration::from_secs(60));
    let ecs = clients.ecs_at(None).unwrap();
    ecs.create_cluster().cluster_name("plant").send().await.unwrap();
    let container = aws_sdk_ecs::types::ContainerDefinition::builder().name("causeway").image("causeway").memory(128).build();
    ecs.register_task_definition().family("worker").container_definitions(container).send().await.unwrap();
    let run = ecs.run_task().cluster("plant").task_definition("worker").count(1).send().await.unwrap();
    let arn = run.tasks()[0].task_arn().unwrap().to_owned();

    let tasks = tasks(&emulator.endpoint);
    assert_eq!(tasks.list(None).await.unwrap(), std::slice::from_ref(&arn));
    let described = tasks.describe(&[arn.clone(), "0123456789abcdef0123456789abcdef".to_owned()]).await.unwrap();
    assert_eq!((described.tasks.len(), described.missing.len()), (1, 1), "{described:?}");
    assert_eq!((described.tasks[0].arn.as_str(), described.tasks[0].desired_status.as_str()), (arn.as_str(), "RUNNING"));
    let Outcome::Done(stopped) = tasks.stop(&arn, "a test").await else { panic!("not stopped") };
    assert_eq!((stopped.desired_status.as_str(), stopped.stopped_reason.as_deref()), ("STOPPED", Some("a test")));
    assert!(stopped.stopped_at.is_some() && stopped.stop_code.as_deref() == Some("UserInitiated"), "{stopped:?}");
    assert_eq!(tasks.list(None).await.unwrap(), Vec::<String>::new());
    let Outcome::NotDone(refused) = tasks.stop("0123456789abcdef0123456789abcdef", "a test").await else {
        panic!("stopped what is not there")
    };
    assert_eq!(refused.code, FaultCode::InvalidConfig, "{refused}");
}
