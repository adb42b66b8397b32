//! `causeway budget`: what a failover may cost at most, term by term.

use super::error::CliError;
use super::{files, output};
use causeway_core::config::{SessionBudget, SessionTiming, SignedSpan, Span, StepDown};
use causeway_core::timing::{Activation, Budget, BudgetError, Nanos};
use core::fmt::Write as _;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// What `budget` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The configuration's files, in the order in which they apply.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print a JSON array with one object for each session.
    #[arg(long)]
    pub json: bool,
}

/// Faults that do not keep the terms from being shown: they are about the sums themselves.
const ABOUT_BUDGETS: [&str; 4] = ["E_FAILOVER_SLO", "E_FAILOVER_BUDGET", "E_FAILOVER_TIMING", "E_STEP_DOWN_UNDECIDED"];

/// Exit code 0 where every declared objective is met, 2 where one is not or the configuration is invalid.
///
/// # Errors
/// Where the answer cannot be printed.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let (text, complaint, code) = answer(args);
    files::complain(&complaint);
    if !text.is_empty() {
        output::line(text.trim_end())?;
    }
    Ok(ExitCode::from(code))
}

fn answer(args: &Args) -> (String, String, u8) {
    let (examined, read) = match files::examine(&args.files) {
        Ok(found) => found,
        Err(faults) => return (String::new(), files::report(&faults, &[]), files::UNUSABLE),
    };
    let errors: Vec<_> = examined.faults.into_iter().filter(|fault| fault.is_error()).collect();
    let complaint = files::report(&errors, &read);
    let code = if errors.is_empty() { 0 } else { files::UNUSABLE };
    let Some(config) = examined.config.filter(|_| errors.iter().all(|fault| ABOUT_BUDGETS.contains(&fault.code))) else {
        return (String::new(), complaint, code);
    };
    let budgets = config.budgets();
    let text = if args.json {
        format!("{:#}\n", budgets.iter().map(as_json).collect::<Value>())
    } else if budgets.is_empty() {
        "no exclusive session\n".to_owned()
    } else {
        budgets.iter().map(table).collect::<Vec<_>>().join("\n")
    };
    (text, complaint, code)
}

fn span(nanos: Nanos) -> Span {
    Span::from_nanos(nanos)
}

#[allow(clippy::cast_precision_loss, reason = "shown to people and dashboards; the exact figure stands beside it in nanoseconds")]
fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// One line: both sums, the objective, the verdict.
#[must_use]
pub fn summary(budget: &SessionBudget) -> String {
    let id = &budget.session_id;
    let (timing, sums) = match (&budget.timing, &budget.budget) {
        (Ok(timing), Some(Ok(sums))) => (timing, sums),
        (Err(error), _) => return format!("{id}: {error}"),
        (_, Some(Err(error))) => return format!("{id}: {error}"),
        (Ok(_), None) => return format!("{id}: unknown"),
    };
    let path = sums.broker_path.map_or_else(|| step_down(timing), |nanos| span(nanos).to_string());
    let verdict = match (timing.objective, &budget.admitted) {
        (Some(objective), Some(verdict)) => format!("objective {}: {}", span(objective), admitted(verdict)),
        _ => "no objective".to_owned(),
    };
    format!("{id}: owner_death {}, broker_path {path}, {verdict}", span(sums.owner_death))
}

fn step_down(timing: &SessionTiming) -> String {
    match timing.step_down {
        Some(StepDown::Off) => "off".to_owned(),
        Some(StepDown::After(after)) => after.to_string(),
        None => "undecided".to_owned(),
    }
}

fn admitted(verdict: &Result<(), BudgetError>) -> String {
    match verdict {
        Ok(()) => "admitted".to_owned(),
        Err(BudgetError::Exceeded { path, budget, objective }) => {
            format!("refused, {path} exceeds it by {}", SignedSpan::from_nanos(budget - objective))
        }
        Err(error) => format!("refused, {error}"),
    }
}

/// The sums, term by term.
fn table(budget: &SessionBudget) -> String {
    let mut out = format!("session {}\n", budget.session_id);
    let (Ok(timing), Some(Ok(sums))) = (&budget.timing, &budget.budget) else {
        let _ = writeln!(out, "  {}", summary(budget));
        return out;
    };
    let cadence = &timing.cadence;
    let mut row = |sign: &str, name: &str, nanos: Nanos, how: String| {
        let line = format!("  {sign} {name:<24} {:>16}  {how}", span(nanos).to_string());
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let polls = format!("2 x {} (acquire_poll_interval {} and its jitter)", span(sums.max_poll), span(cadence.acquire_poll_interval));
    row(" ", "lease_ttl", cadence.lease_ttl, String::new());
    row("+", "polls", 2 * sums.max_poll, polls.clone());
    row(
        "+",
        "calls",
        sums.calls * cadence.renew_call_timeout,
        format!("{} x renew_call_timeout {}", sums.calls, span(cadence.renew_call_timeout)),
    );
    row("+", "activation", sums.activation, "2 x connect_timeout + 4 x reconcile_timeout + 2 x unmatched_grace".to_owned());
    row("+", "startup_allowance", sums.startup_allowance, String::new());
    row("=", "owner_death", sums.owner_death, String::new());
    if let (Some(path), Some(StepDown::After(after))) = (sums.broker_path, timing.step_down) {
        row(" ", "broker_health_step_down", after.as_nanos(), String::new());
        row("+", "renew_interval", cadence.renew_interval, String::new());
        row("+", "jitter", cadence.lease_renew_jitter / 2, format!("half of lease_renew_jitter {}", span(cadence.lease_renew_jitter)));
        row("+", "close and release", 2 * cadence.step_down_grace.min(5_000_000_000), "2 x step_down_grace, each at most 5s".to_owned());
        row("+", "step_down_grace", cadence.step_down_grace, String::new());
        row("+", "polls", 2 * sums.max_poll, polls);
        row("+", "calls", 4 * cadence.renew_call_timeout, format!("4 x renew_call_timeout {}", span(cadence.renew_call_timeout)));
        row("+", "activation", sums.activation, String::new());
        row("+", "startup_allowance", sums.startup_allowance, String::new());
        row("=", "broker_path", path, String::new());
    } else {
        let _ = writeln!(out, "    broker_path: {}", step_down(timing));
    }
    let verdict = match (timing.objective, &budget.admitted) {
        (Some(objective), Some(verdict)) => format!("failover_slo {}: {}", span(objective), admitted(verdict)),
        _ => "failover_slo: none declared".to_owned(),
    };
    let _ = writeln!(out, "    {verdict}");
    out
}

/// One session's budget for programs. Durations are in seconds; the sums stand there in nanoseconds too.
#[must_use]
pub fn as_json(budget: &SessionBudget) -> Value {
    let timing = budget.timing.as_ref().ok();
    let sums = budget.budget.as_ref().and_then(|sums| sums.as_ref().ok());
    let reason = match (&budget.timing, &budget.budget, &budget.admitted) {
        (Err(error), ..) => Some(error.to_string()),
        (_, _, Some(Err(error))) | (_, Some(Err(error)), _) => Some(error.to_string()),
        _ => None,
    };
    json!({
        "session_id": budget.session_id,
        "profile": timing.map(|timing| timing.cadence.profile),
        "terms": timing.map(|timing| terms(timing, sums)),
        "owner_death": sums.map(|sums| seconds(sums.owner_death)),
        "owner_death_ns": sums.map(|sums| sums.owner_death),
        "broker_path": sums.and_then(|sums| sums.broker_path).map(seconds),
        "broker_path_ns": sums.and_then(|sums| sums.broker_path),
        "objective": timing.and_then(|timing| timing.objective).map(seconds),
        "objective_ns": timing.and_then(|timing| timing.objective),
        "admitted": budget.admitted.as_ref().map(Result::is_ok),
        "reason": reason,
    })
}

fn terms(timing: &SessionTiming, sums: Option<&Budget>) -> Value {
    let cadence = &timing.cadence;
    let activation = match timing.activation {
        Activation::Known(nanos) => Some(seconds(nanos)),
        Activation::Unknown => None,
    };
    json!({
        "lease_ttl": seconds(cadence.lease_ttl),
        "renew_interval": seconds(cadence.renew_interval),
        "lease_renew_jitter": seconds(cadence.lease_renew_jitter),
        "renew_call_timeout": seconds(cadence.renew_call_timeout),
        "acquire_poll_interval": seconds(cadence.acquire_poll_interval),
        "max_renew_fails": cadence.max_renew_fails,
        "step_down_grace": seconds(cadence.step_down_grace),
        "min_poll": sums.map(|sums| seconds(sums.min_poll)),
        "max_poll": sums.map(|sums| seconds(sums.max_poll)),
        "calls": sums.map(|sums| sums.calls),
        "activation": activation,
        "startup_allowance": seconds(timing.startup_allowance),
        "broker_health_step_down": match timing.step_down {
            Some(StepDown::After(after)) => json!(seconds(after.as_nanos())),
            Some(StepDown::Off) => json!("off"),
            None => Value::Null,
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    fn budget(file: &str, json: bool) -> (String, String, u8) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(file);
        answer(&Args { files: vec![path], json })
    }

    #[test]
    fn the_scenario_is_admitted_with_every_term() {
        let (text, _, code) = budget("vectors/scenario.yaml", true);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let session = &answer[0];
        assert_eq!(code, 0);
        assert_eq!(session["session_id"], "mqtt-conn");
        assert_eq!(session["owner_death"], json!(967.5));
        assert_eq!(session["objective"], json!(980.0));
        assert_eq!(session["broker_path"], Value::Null);
        assert_eq!(session["admitted"], json!(true));
        assert_eq!(session["terms"]["calls"], json!(81));
        assert_eq!(session["terms"]["min_poll"], json!(3.75));
        assert_eq!(session["terms"]["broker_health_step_down"], json!("off"));
        let (text, ..) = budget("vectors/scenario.yaml", false);
        assert!(text.contains("967.5s") && text.contains("failover_slo 980s: admitted"), "{text}");
    }

    #[test]
    fn an_objective_that_cannot_be_met_is_shown_and_refused() {
        let (text, complaint, code) = budget("fixtures/invalid/failover_slo.yaml", false);
        assert_eq!(code, 2);
        assert!(complaint.contains("E_FAILOVER_SLO"), "{complaint}");
        assert!(text.contains("refused, owner_death exceeds it by"), "{text}");
        assert!(budget("fixtures/invalid/failover_slo.yaml", true).0.contains("\"admitted\": false"));
    }

    #[test]
    fn both_sums_are_shown_where_the_owner_steps_down() {
        let (text, _, code) = budget("fixtures/valid/clustered_step_down.yaml", false);
        assert_eq!(code, 0, "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("= owner_death 336.5s") && words.contains("= broker_path 380s"), "{text}");
    }

    #[test]
    fn without_exclusive_sessions_there_is_nothing_to_add_up() {
        assert_eq!(budget("fixtures/valid/standalone_sqlite.yaml", false).0, "no exclusive session\n");
        assert_eq!(budget("fixtures/valid/standalone_sqlite.yaml", true).0, "[]\n");
    }
}
