#!/bin/sh
# At the first start of the database's container: Nura's role owns the database and is no superuser.
set -eu
psql -v ON_ERROR_STOP=1 --username postgres --dbname nura --set password="$NURA_PASSWORD" <<'SQL'
CREATE EXTENSION IF NOT EXISTS vector;
CREATE ROLE nura LOGIN PASSWORD :'password';
ALTER DATABASE nura OWNER TO nura;
SQL
