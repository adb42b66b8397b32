//! The emulator as somebody, and the tools that people use: `aws` and `cdk`.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;
use xtask::stack::emulators::{DUMMY_KEY, REGION, cache};
use xtask::stack::repository;

/// The account of everything local.
pub const ACCOUNT: &str = "000000000000";

/// Who asks.
#[derive(Clone)]
pub struct Credentials {
    key: String,
    secret: String,
    token: Option<String>,
}

impl Credentials {
    /// The one who may do everything in the emulator.
    pub fn root() -> Self {
        Self { key: DUMMY_KEY.to_owned(), secret: DUMMY_KEY.to_owned(), token: None }
    }
}

/// The emulator, as somebody.
#[derive(Clone)]
pub struct Cloud {
    /// Its address.
    pub endpoint: String,
    /// A home folder of our own: the tools keep caches that name accounts of other emulators.
    home: PathBuf,
    credentials: Credentials,
}

impl Cloud {
    /// The emulator, as the one who may do everything.
    pub fn new(endpoint: &str, home: &Path) -> Self {
        Self { endpoint: endpoint.to_owned(), home: home.to_owned(), credentials: Credentials::root() }
    }

    /// The variables by which programs find the emulator and are somebody there.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ENDPOINT_URL_S3", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", self.credentials.key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", self.credentials.secret.as_str()),
            ("AWS_REGION", REGION),
            ("AWS_DEFAULT_REGION", REGION),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ];
        variables.extend(self.credentials.token.as_deref().map(|token| ("AWS_SESSION_TOKEN", token)));
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// SDK clients as this somebody.
    pub async fn sdk(&self) -> aws_config::SdkConfig {
        use aws_sdk_sqs::config::Credentials as Sdk;
        let Credentials { key, secret, token } = self.credentials.clone();
        aws_config::defaults(aws_config::BehaviorVersion::latest())
            .endpoint_url(&self.endpoint)
            .region(aws_config::Region::new(REGION))
            .credentials_provider(Sdk::new(key, secret, token, None, "local"))
            .load()
            .await
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", &self.home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.environment()).env("AWS_PAGER", "").env("CDK_DISABLE_VERSION_CHECK", "1").env("CI", "true");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// `aws ARGS`, and what it answers; null where it answers nothing.
    ///
    /// # Errors
    /// What it said, where it did not end with 0.
    pub async fn aws(&self, arguments: &[&str]) -> Result<Value> {
        let program = cache().join("awscli-venv/bin/aws");
        let output = self.command(&program).args(["--output", "json", "--endpoint-url", &self.endpoint]).args(arguments).output().await;
        let output = output.with_context(|| format!("cannot run {}: run scripts/deploy-local, which installs it", program.display()))?;
        if !output.status.success() {
            bail!("aws {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        if output.stdout.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("aws {} did not answer in JSON", arguments.join(" ")))
    }

    /// `cdk ARGS` in the folder of the stack; everything it prints goes to `log`. Answers the exit code.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn cdk(&self, arguments: &[&str], variables: &[(&str, &str)], log: &Path) -> Result<i32> {
        let out = std::fs::File::options().create(true).append(true).open(log).with_context(|| format!("cannot open {}", log.display()))?;
        let err = out.try_clone().context("cannot share the log")?;
        let infra = repository().join("infra");
        let mut command = self.command(infra.join("node_modules/.bin/cdk"));
        command.current_dir(&infra).args(arguments).arg("--no-notices").envs(variables.iter().copied()).stdout(out).stderr(err);
        let status = command.status().await.context("cannot run cdk: run `npm ci` in infra/")?;
        Ok(status.code().unwrap_or(-1))
    }

    /// The same emulator, in a role. Roles of the stack trust services alone: the caller is let in first; what the role may do is not touched.
    ///
    /// # Errors
    /// The role is not there.
    pub async fn in_role(&self, arn: &str) -> Result<Self> {
        let name = arn.rsplit('/').next().unwrap_or(arn);
        let trust = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"AWS":"arn:aws:iam::{ACCOUNT}:root"}},"Action":"sts:AssumeRole"}}]}}"#
        );
        self.aws(&["iam", "update-assume-role-policy", "--role-name", name, "--policy-document", &trust]).await?;
        let answer = self.aws(&["sts", "assume-role", "--role-arn", arn, "--role-session-name", "deploy-local"]).await?;
        let text = |field: &str| answer["Credentials"][field].as_str().map(str::to_owned).with_context(|| format!("no {field}"));
        let credentials = Credentials { key: text("AccessKeyId")?, secret: text("SecretAccessKey")?, token: Some(text("SessionToken")?) };
        Ok(Self { credentials, ..self.clone() })
    }
}
