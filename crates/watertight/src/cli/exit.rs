//! Exit codes: few, and the same for every command. `--help` shows this table.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    /// It did what it says.
    Ok,
    /// The task, or the gateway itself, failed.
    Failed,
    /// The command line or the configuration makes no sense.
    Usage,
    /// The gateway, or the agent, did not take it on.
    Refused,
    /// There is no gateway where it was looked for.
    Unreachable,
    /// The task is not over: it is still at work, or waits for an answer.
    Unfinished,
    /// Stopped by a signal before the end.
    Interrupted,
}

/// What `--help` says about it.
pub(super) const TABLE: &str = "Exit codes:
  0    done
  1    the task, the check or the gateway itself failed
  2    the command line or the configuration makes no sense
  3    refused; the message says the reason
  4    the gateway cannot be reached
  5    the task is not over: still at work, or waiting for an answer
  130  interrupted";

impl Code {
    fn number(self) -> u8 {
        match self {
            Code::Ok => 0,
            Code::Failed => 1,
            Code::Usage => 2,
            Code::Refused => 3,
            Code::Unreachable => 4,
            Code::Unfinished => 5,
            Code::Interrupted => 130,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code.number())
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> i32 {
        code.number().into()
    }
}

/// Why a command did not do what it says.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    pub(super) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Code::Usage, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_code() {
        let all = [
            Code::Ok,
            Code::Failed,
            Code::Usage,
            Code::Refused,
            Code::Unreachable,
            Code::Unfinished,
            Code::Interrupted,
        ];
        let listed = TABLE.lines().skip(1).filter_map(|line| line.split_whitespace().next()?.parse().ok());
        assert_eq!(listed.collect::<Vec<i32>>(), all.map(i32::from));
    }
}
