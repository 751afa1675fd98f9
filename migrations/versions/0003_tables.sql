CREATE TABLE sessions (
    tenant_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    agent text COLLATE "C",
    caller text,
    title text,
    metadata text NOT NULL,
    last_agent text COLLATE "C",
    last_seq integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT pk_sessions PRIMARY KEY (tenant_id, session_id)
) WITH (fillfactor = 70);

CREATE INDEX ix_sessions_newest ON sessions (tenant_id, created_at DESC, session_id DESC);
CREATE INDEX ix_sessions_caller ON sessions (tenant_id, caller, created_at DESC, session_id DESC)
    WHERE caller IS NOT NULL;
CREATE INDEX ix_sessions_agent ON sessions (tenant_id, agent, created_at DESC, session_id DESC)
    WHERE agent IS NOT NULL;

-- What each run left in the history: a JSON list of messages.
CREATE TABLE session_items (
    tenant_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    session_seq integer NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    messages text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_session_items PRIMARY KEY (tenant_id, session_id, session_seq)
);

-- owner: the session's id, the root agent's name, or that name, a slash (which no name holds) and the user. value: JSON
-- in ASCII.
CREATE TABLE state_entries (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    -- SHA-256 of the key, which may be longer than an index can hold.
    key_digest bytea NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    CONSTRAINT pk_state_entries PRIMARY KEY (tenant_id, scope, owner, key_digest),
    CONSTRAINT ck_state_entries_scope CHECK (scope IN ('session', 'app', 'user'))
) WITH (fillfactor = 80);

CREATE TABLE artifacts (
    tenant_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    content_type text NOT NULL,
    size bigint NOT NULL,
    sha256 text NOT NULL,
    data bytea NOT NULL,
    created_at timestamptz NOT NULL,
    run_id text COLLATE "C",
    CONSTRAINT pk_artifacts PRIMARY KEY (tenant_id, session_id, name, version)
);

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['sessions', 'session_items', 'state_entries', 'artifacts'])
    AS name;

-- Only erase_session deletes what is kept of a session; a state's key is also deleted by the run that unsets it.
GRANT SELECT, INSERT, UPDATE ON sessions TO runwright_app;
GRANT SELECT, INSERT ON session_items, artifacts TO runwright_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON state_entries TO runwright_app;

-- blocked: an earlier run of its session has not ended. A run with a parent is driven inside its root's claim: it is
-- never queued and has no lease. path is null for a root. All have defaults, so no row is written again.
ALTER TABLE runs
    ADD COLUMN session_id text COLLATE "C",
    ADD COLUMN session_seq integer,
    ADD COLUMN blocked boolean NOT NULL DEFAULT false,
    ADD COLUMN parent_run_id text COLLATE "C",
    ADD COLUMN root_run_id text COLLATE "C",
    ADD COLUMN depth integer NOT NULL DEFAULT 0,
    ADD COLUMN path text[],
    ADD COLUMN team text,
    ADD COLUMN iterations integer NOT NULL DEFAULT 0,
    ADD COLUMN state_owner text COLLATE "C";

DROP INDEX ix_runs_queued;
CREATE INDEX ix_runs_queued ON runs (tenant_id, priority DESC, created_at, run_id)
    WHERE state = 'queued' AND NOT blocked;
CREATE UNIQUE INDEX uq_runs_session_seq ON runs (tenant_id, session_id, session_seq) WHERE session_id IS NOT NULL;
CREATE INDEX ix_runs_session_open ON runs (tenant_id, session_id, session_seq)
    WHERE session_id IS NOT NULL AND state IN ('queued', 'running', 'suspended');
CREATE INDEX ix_runs_parent ON runs (tenant_id, parent_run_id) WHERE parent_run_id IS NOT NULL;
-- To erase a run without reading all of its tenant's pairs.
CREATE INDEX ix_run_metadata_run ON run_metadata (tenant_id, run_id);

GRANT SELECT (blocked, session_id, session_seq, parent_run_id, root_run_id) ON runs TO runwright_scheduler;
