-- Roles stay: they belong to the cluster, and other databases may use them.
DROP TABLE event_consumers, derivations, redactions, cognitive_events;
DROP FUNCTION noema_redact(uuid, text, text, text);
DROP FUNCTION noema_roll_partition();
DROP FUNCTION noema_check_causes();
DROP FUNCTION noema_append_lock();
DROP FUNCTION noema_open_table(regclass);
DROP FUNCTION noema_guard_history(regclass, text[]);
DROP FUNCTION noema_guard();
