-- Distributes the passages of an installation over the workers of a Citus cluster.
--
-- Tried: everything but the calls of Citus itself, on the PostgreSQL 18 that Nura brings. Not tried: Citus. No cluster was at
-- hand, so try it on a copy first, with `manage.py verify` and a search before and after. docs/notes/scale.md tells
-- what shards are measured to cost, and up to which size an installation is better off without them.
--
-- Before: coordinator and workers have Citus, pgvector and the same collation, and know each other (citus_add_node); Nura is
-- stopped; there is a backup (`manage.py backup`).
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/citus/distribute.sql
-- It is one transaction: where something fails, nothing has changed.
--
-- The key is the document: it is the only column that all three tables of passages have, and what Nura writes, deletes and
-- searches by. All passages, words and vectors of a document lie on one worker, and searches within a few documents ask only
-- the workers that hold them. To keep a whole library on one worker, its id would have to stand in the three tables.
--
-- Accounts, chats and runs stay on the coordinator: they are small. The documents' own rows are copied to every worker. Not tried
-- either: the triggers that keep the vectors' signs (documents_vectorcodes), which Citus allows with citus.enable_unsafe_triggers alone.

BEGIN;

-- Citus lets a key be unique only together with the distribution column, and foreign keys lead only along it.
DO $$
DECLARE found record;
BEGIN
    FOR found IN
        SELECT conrelid::regclass AS held_by, conname
          FROM pg_constraint
         WHERE contype IN ('f', 'p', 'u')
           AND (conrelid IN ('documents_chunkterms'::regclass, 'documents_chunkembedding'::regclass)
                OR conrelid = 'documents_chunk'::regclass AND contype = 'p')
           AND (contype <> 'f' OR confrelid = 'documents_chunk'::regclass)
         ORDER BY contype  -- foreign keys before what they refer to
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', found.held_by, found.conname);
    END LOOP;
END
$$;

ALTER TABLE documents_chunk ADD PRIMARY KEY (document_id, id);
ALTER TABLE documents_chunkterms ADD PRIMARY KEY (document_id, chunk_id);
ALTER TABLE documents_chunkembedding ADD PRIMARY KEY (document_id, id);
ALTER TABLE documents_chunkembedding
    ADD CONSTRAINT one_vector_a_space UNIQUE (document_id, chunk_id, space_id);
CREATE INDEX chunk_by_id ON documents_chunk (id);
CREATE INDEX terms_by_chunk ON documents_chunkterms (chunk_id);
ALTER TABLE documents_chunkterms
    ADD FOREIGN KEY (document_id, chunk_id) REFERENCES documents_chunk (document_id, id) ON DELETE CASCADE;
ALTER TABLE documents_chunkembedding
    ADD FOREIGN KEY (document_id, chunk_id) REFERENCES documents_chunk (document_id, id) ON DELETE CASCADE;

\if :{?without_citus}
\echo 'keys are as Citus wants them; nothing was distributed'
ROLLBACK;
\q
\endif

-- What the passages refer to lies on every worker as well.
SELECT create_reference_table('documents_document');
SELECT create_reference_table('documents_embeddingspace');
SET citus.shard_count = 64;
SELECT create_distributed_table('documents_chunk', 'document_id');
SELECT create_distributed_table('documents_chunkterms', 'document_id', colocate_with => 'documents_chunk');
SELECT create_distributed_table('documents_chunkembedding', 'document_id', colocate_with => 'documents_chunk');

COMMIT;

ANALYZE documents_chunk, documents_chunkterms, documents_chunkembedding;
