DROP FUNCTION noema_around(uuid[], text[], text[]);
DROP FUNCTION noema_was_active(uuid, text, timestamptz);
DROP TABLE memory_retracted, memory_retractions, conflict_checks, memory_conflicts, write_tickets, grants, pins, policy_acks, memory_policies,
    memory_relationships, entity_relationships, entity_suggestions, memory_entities, entity_merges,
    entity_aliases, entities, embedding_models, memory_embeddings, memories;
DROP FUNCTION noema_shelve();
DROP FUNCTION noema_in_subtree(text, text);
