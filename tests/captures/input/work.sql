CREATE TABLE page (id INTEGER PRIMARY KEY, owner TEXT, weight INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
INSERT INTO page SELECT i, 'owner' || (i * 7919 % 97), i * i % 1009 FROM n;
COMMIT;
CREATE INDEX by_owner ON page (owner, weight);
SELECT owner, count(*), sum(weight) FROM page GROUP BY owner ORDER BY 3 DESC LIMIT 3;
DELETE FROM page WHERE weight < 200;
VACUUM;
SELECT count(*) FROM page;
