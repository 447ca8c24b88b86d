DROP FUNCTION noema_commit(jsonb, int[], uuid[], uuid[], uuid[], text[], timestamptz[], text[], text[],
    jsonb[], jsonb[], bytea[], bytea[], int[], uuid[], uuid[], text[], text);
DROP TABLE intents, messages, conversations, goals, idempotency_keys, workspace_states, mind_leases,
    mind_settings_versions, minds, modes;
