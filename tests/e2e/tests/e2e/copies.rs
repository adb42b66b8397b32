//! Two workers on one store.

use causeway_e2e::{Run, Setup};
use std::time::Duration;
use xtask::stack::{Store, ports};
use xtask::worker::Settings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_copy_on_the_same_file_is_turned_away() {
    let mut run = Run::start(&Setup::new(Store::Sqlite, 500)).await.unwrap();

    let mut launch = run.rig.launch.clone();
    launch.dir = launch.dir.join("second");
    std::fs::create_dir_all(&launch.dir).unwrap();
    launch.monitor.set_port(ports::free_port().unwrap());
    launch.config = launch.dir.join("causeway.yaml");
    let settings = Settings { monitor_port: launch.monitor.port(), ..run.rig.settings.clone() };
    std::fs::write(&launch.config, settings.render()).unwrap();
    let mut second = launch.start().unwrap();
    let status = second.process.wait(Duration::from_secs(60)).await.unwrap();
    let log = second.process.log_tail(50);
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(log.contains("outbox.db"), "the message must name the file:\n{log}");

    run.publish(0..500, 0);
    let account = run.finish().await.unwrap();
    assert_eq!((account.published, account.delivered, account.lost), (500, 500, 0), "the first copy must not have noticed");
}
