DROP FUNCTION noema_commit(jsonb, text[], jsonb[], text);
DROP TABLE intents, messages, conversations, goals, idempotency_keys, workspace_states, mind_leases,
    mind_settings_versions, minds, modes;
