//! Whether a message may be sent at all, by whichever door it comes: the one place where that is asked.

use std::sync::Arc;

use watertight_policy::access::Denied;
use watertight_policy::reason::Reason;

use super::{Declined, Handle, NewCall};
use crate::access::{Grants, Refused, Rules, Verdict};

impl Handle {
    /// Who may call, which counts from the next [`Handle::configure`] on.
    pub fn grant(&self, grants: Grants) {
        self.shared.grant(grants);
    }

    /// Who may call whom, as it is in force.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.shared.rules()
    }

    /// Before anything of it is looked up or kept.
    pub(super) fn may_send(&self, call: &NewCall) -> Result<(), Declined> {
        let rules = self.rules();
        let verdict = match &call.who {
            Some(who) => rules.judge(who, &call.agent),
            None => match rules.verdict(&call.principal, &call.agent) {
                Verdict::Send => Ok(()),
                Verdict::Refuse(why) => Err(why),
                Verdict::Wait => return Err(self.refused(&call.agent, Reason::StoreUnavailable)),
            },
        };
        match verdict {
            Ok(()) => Ok(()),
            Err(Refused::Denied { why: Denied::Unknown, .. }) => Err(self.refused(&call.agent, Reason::AgentUnknown)),
            // A loop of one, which is told as what it is.
            Err(Refused::Denied { why: Denied::Itself, .. }) if call.who.is_some() => Ok(()),
            Err(why) => {
                self.refused(&call.agent, Reason::Forbidden);
                Err(Declined::Forbidden { agent: call.agent.clone(), why })
            }
        }
    }
}
