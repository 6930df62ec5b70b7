//! What an agent is asked, and what it answers.
