//! Reasons: the one closed vocabulary for why something was refused, failed, or waits.
//!
//! The same words stand in errors, in the API, on the console, in metrics and in logs, so that a word seen in one
//! place can be looked up in all others. Assumes that a reason says what happened and not to whom: ids, times and
//! limits travel beside it. Leaves out protocol codes and statuses, which each face derives from the reason.

use std::fmt;

/// What a reason does to the work it is given for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Turned away before a task existed: nothing was accepted, nothing was spent. Where work may queue instead, the
    /// same word says what it waits for: a delegation that waits for a slot waits with `bulkhead_full`.
    Refusal,
    /// An attempt, or the task, failed.
    Failure,
    /// Accepted and not yet under way.
    Waiting,
}

macro_rules! reasons {
    ($($variant:ident $word:literal $kind:ident $explain:literal)*) => {
        /// Why something was refused, failed, or waits.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Reason {
            $(#[doc = $explain] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word, in snake case: stable, for machines and for searching.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// What happened and what to do about it, in a sentence or two for people.
            pub const fn explain(self) -> &'static str {
                match self {
                    $(Self::$variant => $explain,)*
                }
            }

            /// Whether it refuses, fails or delays.
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$variant => Kind::$kind,)*
                }
            }
        }
    };
}

reasons! {
    BulkheadFull "bulkhead_full" Refusal
        "All slots of this agent are taken and so are the places to wait. Answer without it, or try again shortly; \
         if it happens in normal traffic, give the agent more slots."
    BreakerOpen "breaker_open" Refusal
        "This agent failed too often and gets no traffic for a while. Answer without it; single trials decide when \
         it is back."
    AgentPacing "agent_pacing" Refusal
        "The agent asked everyone to slow down. Try again after the time given."
    QueueFull "queue_full" Refusal
        "As many delegations wait for the agent as may. Try again after the time given, or raise the limit that is \
         named."
    ContextQueueFull "context_queue_full" Refusal
        "Too many messages already wait in this context. Wait for some to finish before sending more."
    TaskBusy "task_busy" Refusal
        "The task is still working on an earlier message, and takes one at a time. Send again when its turn has \
         ended."
    DepthExhausted "depth_exhausted" Refusal
        "The chain of delegations has used all its hops. Do this part without delegating, or begin with a greater \
         depth."
    FanoutExhausted "fanout_exhausted" Refusal
        "This task has started as many delegations as it may. Work with the results it has, or begin with a greater \
         fan-out."
    BudgetExhausted "budget_exhausted" Refusal
        "Too little time is left to start another delegation and still answer. Answer with what is there, or allow \
         more time at the beginning."
    DelegationCycle "delegation_cycle" Refusal
        "The agent is already at work further up in this chain of delegations, or is the caller itself, and each would wait \
         for the other. Trying again cannot help; do this part without it, or answer with what is there."
    ParentEnded "parent_ended" Refusal
        "The delegation that this is for has ended, and what is started for a delegation ends with it. Do not send it \
         again for this one; nobody waits for its result any more."
    AgentUnknown "agent_unknown" Refusal
        "There is no such agent for this caller. Check its name against the list of agents."
    AgentDraining "agent_draining" Refusal
        "The agent is being taken out of service: it finishes what it has and takes nothing new. Use another agent, \
         or wait until it is back."
    Unauthenticated "unauthenticated" Refusal
        "The request carries no credential, or one that is not valid. Send a valid token."
    Forbidden "forbidden" Refusal
        "The credential is valid and does not allow this. Ask whoever runs the gateway for the scope or the grant."
    RateLimited "rate_limited" Refusal
        "One agent sends another more messages in this conversation than two agents need. Stop answering each message with \
         another one; if there is more to say, try again after the time given."
    CellOverloaded "cell_overloaded" Refusal
        "The tenant's cell is at its limit. Try again shortly; other tenants are not affected."
    TooLarge "too_large" Refusal
        "The message is larger than is accepted. Make it smaller, or send a reference to the content."
    MessageIdConflict "message_id_conflict" Refusal
        "This message id was used before with another content. Use a new id for a new message; a repeat must be \
         identical."
    ShuttingDown "shutting_down" Refusal
        "The gateway is stopping. Try again when it is back; what was accepted is kept."
    StoreUnavailable "store_unavailable" Refusal
        "The store cannot be written, and nothing is accepted that could be lost. Try again; check the disk or the \
         database."
    InputParked "input_parked" Refusal
        "The gateway itself failed on this input twice and set it aside. Do not send it again as it is; report it with \
         the task's id."
    Internal "internal" Refusal
        "The gateway made a mistake. Try again; if it happens again, report it with the id given."
    AgentConnectRefused "agent_connect_refused" Failure
        "Nothing listens at the agent's address. Check that it runs, and its URL."
    AgentConnectTimeout "agent_connect_timeout" Failure
        "The agent's address did not answer in time. Check the network and the firewall between here and there."
    AgentDnsFailure "agent_dns_failure" Failure
        "The agent's host name could not be resolved. Check the name and the resolver."
    AgentTlsFailure "agent_tls_failure" Failure
        "No secure connection to the agent could be made. Check its certificate, its name and its validity."
    AgentReset "agent_reset" Failure
        "The agent broke the connection before it answered. Look for a crash or a restart in its log."
    AgentNoAnswer "agent_no_answer" Failure
        "The agent was connected and said nothing, or stopped in the middle, for longer than allowed. See whether \
         it hangs."
    AgentHttpError "agent_http_error" Failure
        "The agent, or a proxy before it, answered with a server error. Look into its log."
    AgentUnauthorized "agent_unauthorized" Failure
        "The agent does not accept the gateway's credential. Renew the one configured for it."
    AgentRejectedRequest "agent_rejected_request" Failure
        "The agent did not take the request as it was, or pointed elsewhere. Check its URL, its version and the \
         message."
    AgentRateLimited "agent_rate_limited" Failure
        "The agent said that it gets too many requests. Its wish to wait is kept for all its callers; lower its \
         slots if it repeats."
    AgentTruncated "agent_truncated" Failure
        "The agent's answer ended before it was complete. Look for a crash, or a proxy that cuts long answers."
    AgentMalformed "agent_malformed" Failure
        "The agent's answer does not conform to the protocol. Report it to whoever runs the agent."
    AgentError "agent_error" Failure
        "The agent answered with an error of its own. Its code and text are kept with the attempt."
    AgentUnreachable "agent_unreachable" Failure
        "The agent gave no answer over several questions in a row and was given up on. The work may have been done; \
         check before repeating it."
    ResultTooLarge "result_too_large" Failure
        "The result is larger than is accepted, and is withheld whole. Ask for less, or fetch it by its id."
    ResultRejected "result_rejected" Failure
        "The result does not match the schema agreed with the agent, and is withheld. The record says which part \
         and which rule."
    DeadlineExceeded "deadline_exceeded" Failure
        "The time for this delegation ran out, and the agent was told to stop. Allow more time, or ask for less."
    OutcomeUnknown "outcome_unknown" Failure
        "The request may have reached the agent, and nobody can say what came of it. Check with the agent before \
         repeating it."
    Expired "expired" Failure
        "The delegation waited for longer than it may, for a slot or for its caller's answer. Send it again if it is \
         still wanted."
    Dropped "dropped" Failure
        "An operator took the delegation out of the queue before it began. The record says why; send it again if it is \
         still wanted."
    Canceled "canceled" Failure
        "The delegation was canceled. Nothing needs to be done."
    ReaderLagged "reader_lagged" Failure
        "The reader of a stream did not keep up, and its stream was closed. The task goes on; subscribe again to get it as it is."
    ContextBusy "context_busy" Waiting
        "An earlier message of the same context is under way, and a context goes in order. It follows when that one \
         ends."
    AgentAsleep "agent_asleep" Waiting
        "Nobody answers at the agent's address, and it is being woken. The message follows as soon as it is there."
    NoWorker "no_worker" Waiting
        "The agent fetches its work, and no worker of it has begun with this. The next one that asks is given it."
    Backoff "backoff" Waiting
        "An attempt failed without harm, and the next one waits a moment. Nothing needs to be done."
}

impl Reason {
    /// The reason of a word; `None` for a word outside the vocabulary.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snake_case(variant: &str) -> String {
        let mut word = String::new();
        for letter in variant.chars() {
            if letter.is_uppercase() && !word.is_empty() {
                word.push('_');
            }
            word.extend(letter.to_lowercase());
        }
        word
    }

    #[test]
    fn words_are_the_variants_in_snake_case_and_lead_back() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str(), snake_case(&format!("{reason:?}")));
            assert_eq!(Reason::from_word(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::from_word("bulkhead"), None);
        assert_eq!(Reason::from_word(""), None);
    }

    #[test]
    fn every_reason_is_explained_to_people() {
        for reason in Reason::ALL {
            let text = reason.explain();
            let two_parts = text.contains(". ") || text.contains("; ");
            assert!(text.ends_with('.') && two_parts && !text.contains("  "), "{reason}: {text}");
        }
    }

    #[test]
    fn kinds() {
        let count = |kind| Reason::ALL.iter().filter(|reason| reason.kind() == kind).count();
        assert_eq!((count(Kind::Refusal), count(Kind::Failure), count(Kind::Waiting)), (23, 22, 4));
    }
}
