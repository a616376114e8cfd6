-- Distributes the passages of an installation over the workers of a Citus cluster.
--
-- Tested: everything except the calls of Citus itself, on the bundled PostgreSQL 18. Not tested: Citus, because no cluster was
-- available. Try it on a copy first, with `manage.py verify` and a search before and after. docs/notes/scale.md has the measured
-- cost of shards, and the size up to which an installation is better off without them.
--
-- Requirements: coordinator and workers have Citus, pgvector and the same collation, and know each other (citus_add_node); Nura
-- is stopped; there is a backup (`manage.py backup`).
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/citus/distribute.sql
-- It is one transaction: if anything fails, nothing has changed.
--
-- The distribution key is the document: it is the only column that all three passage tables share, and the one by which Nura
-- writes, deletes and searches. All passages, words and vectors of a document are on one worker, and searches within a few
-- documents query only the workers that hold them. To keep a whole library on one worker, its id would have to be in all three tables.
--
-- Accounts, chats and runs stay on the coordinator: they are small. The rows of documents are copied to every worker. Also not
-- tested: the triggers that maintain the sign bits of vectors (documents_vectorcodes), which Citus allows only with
-- citus.enable_unsafe_triggers.

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
