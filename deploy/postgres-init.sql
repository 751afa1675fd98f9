-- Run once with psql as a superuser on an empty cluster, version 15 or newer; docker-compose.yml does it by itself.
--   RUNWRIGHT_OWNER_PASSWORD=... RUNWRIGHT_APP_PASSWORD=... psql -v ON_ERROR_STOP=1 -f deploy/postgres-init.sql
-- It makes the two roles that log in, and the database. `runwright migrate`, as the owner, makes everything inside it
-- and runwright_scheduler, which nobody logs in as; that's what CREATEROLE is for.

-- From the environment and not from the command line, where every user of the machine could read them. An unset one
-- stays unreplaced below and is a syntax error.
\getenv owner_password RUNWRIGHT_OWNER_PASSWORD
\getenv app_password RUNWRIGHT_APP_PASSWORD

CREATE ROLE runwright_owner LOGIN CREATEROLE PASSWORD :'owner_password';
CREATE ROLE runwright_app LOGIN PASSWORD :'app_password';
CREATE DATABASE runwright OWNER runwright_owner ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE runwright FROM PUBLIC;
GRANT CONNECT ON DATABASE runwright TO runwright_app;
