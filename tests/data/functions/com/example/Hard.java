package com.example;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.sql.api.java.UDF1;

/** What nobody should call: it keeps count of its calls and fails for each seventh one, or it fails with an Error. */
public class Hard implements UDF1<String, String> {
  private static final AtomicInteger CALLS = new AtomicInteger();

  @Override
  public String call(String text) {
    switch (text) {
      case "deep":
        return call("deep") + CALLS;
      case "unlinked":
        throw new NoClassDefFoundError("com/example/Helper of " + text);
      case "fine":
        return text;
      default:
        if (CALLS.getAndIncrement() % 7 == 0) {
          throw new IllegalStateException(text);
        }
        return text;
    }
  }
}
